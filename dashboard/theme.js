// Light or dark: as the system says, until somebody chooses. A plain script in the head, so that nothing flashes.
(() => {
  const KEY = "forebay.theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const show = () => {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
    dispatchEvent(new Event("themechange"));
  };
  const toggle = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // Without storage it holds for this page.
    }
    document.documentElement.dataset.theme = next;
    dispatchEvent(new Event("themechange"));
  };
  system.addEventListener("change", show);
  addEventListener("DOMContentLoaded", () => document.getElementById("theme").addEventListener("click", toggle));
  show();
})();

//! Parse, build, run.

use std::io::Write;
use std::process::ExitCode;

use forebay::app;
use forebay::config::{self, Command};

/// Something the user gave is wrong: flags, configuration, model files.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let (command, loaded) = match config::from_args() {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    match command {
        Command::Serve => {}
        Command::Config => {
            // A closed pipe (`forebay config | head -1`) is nobody's mistake, and `print!` would panic.
            let _ = std::io::stdout().write_all(loaded.describe().as_bytes());
            return ExitCode::SUCCESS;
        }
        Command::Health { url } => return forebay::probe::run(&url),
        Command::Inspect { path, format } => return end(app::inspect(path, format, &loaded.config)),
        Command::Quantize { from, to, kind } => {
            set_threads(app::compute_threads(&loaded.config));
            return end(app::quantize(&from, &to, kind));
        }
        Command::Bench(args) => return end(app::bench(&args)),
        Command::Calibrate(args) => return end(app::calibrate(&args)),
        Command::Keys(args) => return end(app::keys(&args, &loaded.config)),
        Command::Usage(args) => return end(app::usage(&args, &loaded.config)),
        Command::Db(args) => return end(app::db(args, &loaded.config)),
        Command::Doctor { format, mistake } => {
            set_threads(app::compute_threads(&loaded.config));
            return app::doctor(&loaded, mistake, format);
        }
        Command::Simulate(args) => return end(app::simulate(&args, &loaded.config)),
    }
    set_threads(app::compute_threads(&loaded.config));
    match app::serve(loaded) {
        Ok(how) => ExitCode::from(how.exit_code()),
        Err(failure) => end(Err(failure)),
    }
}

fn end(result: Result<(), app::Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(app::Failure::Input(error)) => refuse(error.as_ref()),
        Err(app::Failure::Runtime(error)) => {
            eprintln!("forebay: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("forebay: {error}");
    ExitCode::from(BAD_INPUT)
}

/// Rayon and candle read their thread counts from the environment, and candle's default ignores a container's quota.
#[allow(unsafe_code)]
fn set_threads(count: usize) {
    for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
        // SAFETY: no other thread has been started yet, so nobody reads the environment while it changes.
        unsafe { std::env::set_var(name, count.to_string()) };
    }
}

//! The row of a table of settings.

use std::fmt;
use std::ops::RangeInclusive;

use super::field::Field;
use super::kind::Kind;
use super::value::Value;
use crate::units::Micros;

/// When a new value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// With the next start: what was made of the old value is in use.
    Restart,
    /// From a reload on.
    Reload,
    /// From a reload on, or from a change by the operator under `/admin` and this name.
    Tuned(&'static str),
}

type Get<C> = Box<dyn Fn(&C) -> Value + Send + Sync>;
/// An error says what is allowed.
type Set<C> = Box<dyn Fn(&mut C, Value) -> Result<(), String> + Send + Sync>;

/// One setting of a configuration `C`.
///
/// A row begins with its key and its field, narrows the kind (`whole`, `millis`, `duration`, ...) and ends with its help:
/// ```
/// use forebay_core::settings::Setting;
/// use forebay_core::units::Micros;
/// #[derive(Clone, Default)]
/// struct Queue { aging: Micros }
/// let row = Setting::new("queue.aging_ms", |queue: &mut Queue| &mut queue.aging)
///     .millis(Micros::MILLISECOND..=Micros::HOUR)
///     .tuned("limits")
///     .help("a queued request rises one priority per so much waiting");
/// let mut queue = Queue::default();
/// row.put(&mut queue, "250").unwrap();
/// assert_eq!(queue.aging, Micros::from_millis(250));
/// assert_eq!(row.put(&mut queue, "0").unwrap_err(), "a number of milliseconds from 1 to 3600000");
/// ```
pub struct Setting<C> {
    pub key: &'static str,
    pub kind: Kind,
    /// One sentence.
    pub help: &'static str,
    /// The name of its flag, without dashes.
    pub flag: Option<&'static str>,
    pub effect: Effect,
    /// Never shown.
    pub is_secret: bool,
    /// Memory was sized for the value at the start: no later one may be greater.
    pub sized_at_start: bool,
    /// What is allowed, where the kind does not say it.
    form: Option<&'static str>,
    zero_is_off: bool,
    default: Value,
    get: Get<C>,
    set: Set<C>,
}

impl<C: Clone + Default + 'static> Setting<C> {
    /// A setting that `field` holds; its default is that of `C`.
    pub fn new<T: Field + 'static>(key: &'static str, field: fn(&mut C) -> &mut T) -> Setting<C> {
        let get = move |config: &C| field(&mut config.clone()).value();
        let set = move |config: &mut C, value: Value| {
            field(config).put(value);
            Ok(())
        };
        Setting::row(key, T::kind(), Box::new(get), Box::new(set))
    }

    /// A setting with one name per value.
    pub fn one_of<T: Copy + PartialEq + Send + Sync + 'static>(
        key: &'static str,
        field: fn(&mut C) -> &mut T,
        choices: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Setting<C> {
        let choices: Vec<(&'static str, T)> = choices.into_iter().collect();
        let kind = Kind::OneOf(choices.iter().map(|(name, _)| *name).collect());
        let named = choices.clone();
        let get = move |config: &C| {
            let value = *field(&mut config.clone());
            // A value without a name, which only code can choose, has no text.
            named
                .iter()
                .find(|(_, known)| *known == value)
                .map_or(Value::Unset, |(name, _)| Value::Text((*name).into()))
        };
        let set = move |config: &mut C, value: Value| {
            if let Some((_, chosen)) = choices.iter().find(|(name, _)| Value::Text((*name).into()) == value) {
                *field(config) = *chosen;
            }
            Ok(())
        };
        Setting::row(key, kind, Box::new(get), Box::new(set))
    }

    /// A setting whose text has a form of its own, which `form` describes and `read` reads.
    pub fn own<T: 'static>(
        key: &'static str,
        field: fn(&mut C) -> &mut T,
        form: &'static str,
        show: fn(&T) -> String,
        read: fn(&str) -> Option<T>,
    ) -> Setting<C> {
        let get = move |config: &C| Value::Text(show(field(&mut config.clone())));
        let set = move |config: &mut C, value: Value| {
            let Value::Text(text) = value else { return Err(form.to_owned()) };
            *field(config) = read(&text).ok_or_else(|| form.to_owned())?;
            Ok(())
        };
        Setting { form: Some(form), ..Setting::row(key, Kind::Text, Box::new(get), Box::new(set)) }
    }

    /// A setting that no single field holds, such as one of two that fill an enum between them. `set` refuses with `None`,
    /// and `form` says what is allowed.
    pub fn with(
        key: &'static str,
        form: &'static str,
        get: fn(&C) -> String,
        set: fn(&mut C, &str) -> Option<()>,
    ) -> Setting<C> {
        let put = move |config: &mut C, value: Value| match value {
            Value::Text(text) => set(config, &text).ok_or_else(|| form.to_owned()),
            _ => Err(form.to_owned()),
        };
        let get = move |config: &C| Value::Text(get(config));
        Setting { form: Some(form), ..Setting::row(key, Kind::Text, Box::new(get), Box::new(put)) }
    }

    fn row(key: &'static str, kind: Kind, get: Get<C>, set: Set<C>) -> Setting<C> {
        let default = get(&C::default());
        Setting {
            key,
            kind,
            help: "",
            flag: None,
            effect: Effect::Restart,
            is_secret: false,
            sized_at_start: false,
            form: None,
            zero_is_off: false,
            default,
            get,
            set,
        }
    }
}

impl<C: 'static> Setting<C> {
    /// Whole numbers of this range; in an optional field `auto`, too.
    pub fn whole(mut self, range: RangeInclusive<u64>) -> Setting<C> {
        let (least, most) = range.into_inner();
        self.kind = match self.kind {
            Kind::AutoWhole { .. } if !self.zero_is_off => Kind::AutoWhole { least, most },
            _ => Kind::Whole { least, most },
        };
        self
    }

    pub fn real(mut self, range: RangeInclusive<f64>) -> Setting<C> {
        let (least, most) = range.into_inner();
        self.kind = Kind::Real { least, most };
        self
    }

    /// A time in milliseconds without a unit; the key ends with `_ms`.
    pub fn millis(mut self, range: RangeInclusive<Micros>) -> Setting<C> {
        let (least, most) = range.into_inner();
        self.kind = Kind::Millis { least, most };
        self
    }

    /// A time with its unit.
    pub fn duration(mut self, range: RangeInclusive<Micros>) -> Setting<C> {
        let (least, most) = range.into_inner();
        self.kind = Kind::Duration { least, most };
        self
    }

    /// `auto` or a size in GiB.
    pub fn gib(mut self, range: RangeInclusive<f64>) -> Setting<C> {
        let (least, most) = range.into_inner();
        self.kind = Kind::AutoGib { least, most };
        self
    }

    /// Zero stands for `None` in an optional field. Comes before the kind.
    pub fn zero_is_off(mut self) -> Setting<C> {
        self.zero_is_off = true;
        self
    }

    /// A reload puts a new value in force.
    pub fn live(mut self) -> Setting<C> {
        self.effect = Effect::Reload;
        self
    }

    /// A reload puts a new value in force, and so does a change under `/admin` and this name.
    pub fn tuned(mut self, resource: &'static str) -> Setting<C> {
        self.effect = Effect::Tuned(resource);
        self
    }

    /// Memory is sized for the value at the start.
    pub fn sized_at_start(mut self) -> Setting<C> {
        self.sized_at_start = true;
        self
    }

    pub fn secret(mut self) -> Setting<C> {
        self.is_secret = true;
        self
    }

    pub fn flag(mut self, flag: &'static str) -> Setting<C> {
        self.flag = Some(flag);
        self
    }

    pub fn help(mut self, help: &'static str) -> Setting<C> {
        self.help = help;
        self
    }

    /// The same setting of a configuration that `C` is a part of.
    pub fn within<D: 'static>(self, part: fn(&D) -> &C, part_mut: fn(&mut D) -> &mut C) -> Setting<D> {
        let Setting { get, set, .. } = self;
        Setting {
            get: Box::new(move |whole| get(part(whole))),
            set: Box::new(move |whole, value| set(part_mut(whole), value)),
            key: self.key,
            kind: self.kind,
            help: self.help,
            flag: self.flag,
            effect: self.effect,
            is_secret: self.is_secret,
            sized_at_start: self.sized_at_start,
            form: self.form,
            zero_is_off: self.zero_is_off,
            default: self.default,
        }
    }

    /// What the key stands under: `batching` of `batching.aging_ms`.
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// The key within its section.
    pub fn leaf(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, leaf)| leaf)
    }

    /// Its name in JSON, where times are numbers of milliseconds: `queue_timeout_ms` of `batching.queue_timeout`.
    pub fn wire_name(&self) -> String {
        let unit = if matches!(self.kind, Kind::Duration { .. }) { "_ms" } else { "" };
        format!("{}{unit}", self.leaf())
    }

    pub fn default_text(&self) -> String {
        self.kind.show(&self.default)
    }

    /// What is allowed, in the words of every refusal.
    pub fn allowed(&self) -> String {
        self.form.map_or_else(|| self.kind.allowed(), str::to_owned)
    }

    pub fn value(&self, config: &C) -> Value {
        (self.get)(config)
    }

    pub fn text(&self, config: &C) -> String {
        self.kind.show(&self.value(config))
    }

    /// Reads `text` into its field. An error says what is allowed, and leaves everything as it was.
    pub fn put(&self, config: &mut C, text: &str) -> Result<(), String> {
        let value = self.kind.parse(text).ok_or_else(|| self.allowed())?;
        let off = self.zero_is_off && value.is_zero();
        (self.set)(config, if off { Value::Unset } else { value })
    }

    /// Whether two texts stand for the same value: `60s` and `1m`.
    pub fn same(&self, one: &str, other: &str) -> bool {
        self.kind.parse(one) == self.kind.parse(other)
    }

    /// The kind while the server runs that began with `start`.
    pub fn kind_since(&self, start: &C) -> Kind {
        if self.sized_at_start { self.kind.up_to(&self.value(start)) } else { self.kind.clone() }
    }
}

impl<C> fmt::Debug for Setting<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting").field("key", &self.key).field("kind", &self.kind).finish_non_exhaustive()
    }
}

//! The keys of the configuration. The name, meaning, accepted values and settings field of a key
//! are stated in one place only. The parser, the printer, the reference and the reload use this
//! definition.

use std::any::Any;

use toml::de::DeValue;

use super::expected_value::ExpectedValue;
use super::setting::Setting;
use super::value_error::ValueError;

/// The time at which a changed value takes effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// At a reload.
    Reload,
    /// The value takes effect at the next start.
    Restart,
}

/// A key of a table whose settings have type `S`.
pub(super) struct Key<S: 'static> {
    pub(super) spec: KeySpec,
    access: &'static dyn Access<S>,
}

/// The properties of a key, except the location of its value in the settings.
pub(super) struct KeySpec {
    pub(super) name: &'static str,
    /// Lines that describe the key for operators. The limits from `expected` are added to these
    /// lines.
    about: &'static [&'static str],
    pub(super) expected: fn() -> ExpectedValue,
    pub(super) effect: Effect,
    /// Whether the key must be present in its table.
    pub(super) is_required: bool,
    /// The condition under which this key has an effect; `None` if it always has an effect.
    pub(super) condition: Option<Condition>,
}

/// A condition on another key of the same table. If that key does not have this value, the key with
/// the condition has no effect.
#[derive(Clone, Copy)]
pub(super) struct Condition {
    pub(super) key: &'static str,
    pub(super) value: &'static str,
    /// The default, as TOML, that applies if the other key has the required value.
    pub(super) default: Option<&'static str>,
}

/// Reads and writes the value of one key in the settings of its table.
trait Access<S>: Sync {
    fn read(&self, settings: &mut S, value: DeValue<'_>, expected: &ExpectedValue) -> Result<(), ValueError>;
    fn write(&self, settings: &mut S, expected: &ExpectedValue) -> Option<String>;
    fn is_same(&self, one: &mut S, other: &mut S) -> bool;
    fn copy(&self, settings: &mut S, from: &mut S);
}

/// The function that finds a setting of type `T` in the settings of a table. The function returns
/// `None` if other settings leave the setting without effect.
pub(super) struct Place<S, T>(pub(super) fn(&mut S) -> Option<&mut T>);

/// The settings of a table.
pub(super) trait Keyed: Any + Sized {
    /// Returns the keys of the table, in the order of the reference.
    fn keys(&self) -> Vec<&'static Key<Self>>;
}

/// The settings of any table, accessed by the names of its keys. Most methods need exclusive
/// access. A key has only one function that finds its value, and this function returns a mutable
/// reference.
pub(super) trait Table: Any {
    /// Returns the keys, in the order of the reference.
    fn specs(&self) -> Vec<&'static KeySpec>;

    /// Parses, checks and sets the value of a key.
    ///
    /// # Errors
    /// The error is a message that names the mistake and says what to write. In this case, the
    /// setting is unchanged.
    fn read(&mut self, key: &str, value: DeValue<'_>) -> Result<(), String>;

    /// Returns the value of a key as TOML; `None` if other settings leave it without effect.
    fn write(&mut self, key: &str) -> Option<String>;

    /// Returns whether another table of the same type sets the key to the same value.
    fn is_same(&mut self, key: &str, other: &mut dyn Table) -> bool;

    /// Sets a key to the value that it has in another table of the same type.
    fn copy(&mut self, key: &str, from: &mut dyn Table);
}

impl<S: 'static> Key<S> {
    /// Creates a key.
    pub(super) const fn new<T: Setting>(
        name: &'static str,
        about: &'static [&'static str],
        expected: fn() -> ExpectedValue,
        effect: Effect,
        place: &'static Place<S, T>,
    ) -> Self {
        let spec = KeySpec { name, about, expected, effect, is_required: false, condition: None };
        Self { spec, access: place }
    }

    /// Makes the key required, which means that its table must contain it.
    pub(super) const fn required(mut self) -> Self {
        self.spec.is_required = true;
        self
    }

    /// Specifies that the key has an effect only if another key has a certain value. `default` is
    /// the default of this key in that case.
    pub(super) const fn only_with(
        mut self,
        key: &'static str,
        value: &'static str,
        default: Option<&'static str>,
    ) -> Self {
        self.spec.condition = Some(Condition { key, value, default });
        self
    }
}

impl KeySpec {
    /// Returns the description for operators. It consists of the first sentence, the limits, the
    /// condition, the further sentences and the effect.
    pub(super) fn description(&self) -> String {
        // The backticks of doc comments are for rustdoc, so they are removed here.
        let lines: Vec<&str> = self.about.iter().map(|line| line.trim()).collect();
        let text = lines.join(" ").replace('`', "");
        let (first, rest) = match text.split_once(". ") {
            Some((first, rest)) => (format!("{first}."), Some(rest.to_owned())),
            None => (text, None),
        };
        let limits = Some((self.expected)().sentence()).filter(|limits| !limits.is_empty());
        let condition = self.condition.map(|of| format!("Only with {} = \"{}\".", of.key, of.value));
        let effect = match self.effect {
            Effect::Reload => None,
            Effect::Restart => Some("A change takes effect at the next start.".to_owned()),
        };
        let sentences = [Some(first), limits, condition, rest, effect];
        sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl<S: 'static, T: Setting> Access<S> for Place<S, T> {
    fn read(&self, settings: &mut S, value: DeValue<'_>, expected: &ExpectedValue) -> Result<(), ValueError> {
        let value = T::read(value, expected)?;
        if let Some(place) = (self.0)(settings) {
            *place = value;
        }
        Ok(())
    }

    fn write(&self, settings: &mut S, expected: &ExpectedValue) -> Option<String> {
        (self.0)(settings).map(|value| value.write(expected))
    }

    fn is_same(&self, one: &mut S, other: &mut S) -> bool {
        match ((self.0)(one), (self.0)(other)) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    fn copy(&self, settings: &mut S, from: &mut S) {
        if let (Some(place), Some(value)) = ((self.0)(settings), (self.0)(from)) {
            place.clone_from(value);
        }
    }
}

impl<S: Keyed> Table for S {
    fn specs(&self) -> Vec<&'static KeySpec> {
        self.keys().into_iter().map(|key| &key.spec).collect()
    }

    fn read(&mut self, key: &str, value: DeValue<'_>) -> Result<(), String> {
        let Some(key) = find(self, key) else { return Ok(()) };
        let expected = (key.spec.expected)();
        key.access.read(self, value, &expected).map_err(|error| error.with_advice(&expected))
    }

    fn write(&mut self, key: &str) -> Option<String> {
        find(self, key).and_then(|key| key.access.write(self, &(key.spec.expected)()))
    }

    fn is_same(&mut self, key: &str, other: &mut dyn Table) -> bool {
        let other = (other as &mut dyn Any).downcast_mut();
        find(self, key).zip(other).is_some_and(|(key, other)| key.access.is_same(self, other))
    }

    fn copy(&mut self, key: &str, from: &mut dyn Table) {
        if let Some((key, from)) = find(self, key).zip((from as &mut dyn Any).downcast_mut()) {
            key.access.copy(self, from);
        }
    }
}

fn find<S: Keyed>(settings: &S, name: &str) -> Option<&'static Key<S>> {
    settings.keys().into_iter().find(|key| key.spec.name == name)
}

/// Defines one key of the settings `$settings`. Its doc comment is the description for operators.
/// The doc comment has plain sentences without the limits, because the limits follow from the
/// expected values.
macro_rules! key {
    (
        $settings:ty;
        $(#[doc = $about:literal])+
        $name:ident: $expected:expr, $effect:ident, $place:expr
        $(, $option:ident($($argument:expr),*))*
    ) => {
        $crate::config::key::Key::new(
            stringify!($name),
            &[$($about),+],
            || $expected,
            $crate::config::key::Effect::$effect,
            &$crate::config::key::Place::<$settings, _>($place),
        )$(.$option($($argument),*))*
    };
}

/// Defines a list of keys for the settings `$settings`. Each key is written as in `key!`.
macro_rules! keys {
    (
        $visibility:vis const $list:ident of $settings:ty;
        $(
            $(#[doc = $about:literal])+
            $name:ident: $expected:expr, $effect:ident, $place:expr
            $(, $option:ident($($argument:expr),*))*;
        )+
    ) => {
        $visibility const $list: &[$crate::config::key::Key<$settings>] = &[$(
            $crate::config::key::key! {
                $settings;
                $(#[doc = $about])+
                $name: $expected, $effect, $place $(, $option($($argument),*))*
            },
        )+];
    };
}

/// Defines the settings of a table, which are a struct, defaults and keys. Each line is a field
/// with its default, the expected values and the effect of a change. `also` adds a key for a part
/// of that field.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $name:ident {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $default:expr, $expected:expr, $effect:ident $(, also $more:ident)?;
        )+}
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {$(
            $(#[doc = $doc])+
            pub $field: $type,
        )+}

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::config::key::Keyed for $name {
            fn keys(&self) -> Vec<&'static $crate::config::key::Key<Self>> {
                const KEYS: &[$crate::config::key::Key<$name>] = &[$(
                    $crate::config::key::key! {
                        $name;
                        $(#[doc = $doc])+
                        $field: $expected, $effect, |settings| Some(&mut settings.$field)
                    },
                    $($more,)?
                )+];
                KEYS.iter().collect()
            }
        }
    };
}

pub(super) use {key, keys, settings};

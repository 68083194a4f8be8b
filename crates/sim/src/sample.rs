//! Makes up values of any type that can be sent, and the text that shows them, so that a test has
//! every message without a list of its fields.

use std::fmt::{self, Display, Write};

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    SeqAccess, VariantAccess, Visitor,
};

use crate::hex::hex;

/// Function for the bytes of a value that is sent in an encoding of its own (a row): by the name of
/// its type, and the number of the sample.
pub type Forms<'a> = &'a dyn Fn(&str, usize) -> Option<Vec<u8>>;

/// A made-up value.
pub struct Sample<T> {
    pub value: T,
    /// Text of all its fields, with their names and types.
    pub text: String,
    /// Number of samples with other variants of its enums, including this one.
    pub turns: usize,
}

/// Returns sample `turn` of a type. Sample 0 has the first variant of each enum, no optional value
/// and no element of a list; the others have these, and further variants.
///
/// # Panics
/// If the type takes what no sample has.
pub fn sample<T: DeserializeOwned>(turn: usize, forms: Forms<'_>) -> Sample<T> {
    let mut sampler = Sampler { turn, next: 0, text: String::new(), turns: 3, forms, form: None };
    match T::deserialize(&mut sampler) {
        Ok(value) => Sample { value, text: sampler.text, turns: sampler.turns },
        Err(error) => panic!("no sample {turn} after {}: {error}", sampler.text),
    }
}

/// The reason why there is no sample.
#[derive(Debug)]
pub struct SampleError(String);

impl Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SampleError {}

impl serde::de::Error for SampleError {
    fn custom<T: Display>(text: T) -> SampleError {
        SampleError(text.to_string())
    }
}

struct Sampler<'a> {
    turn: usize,
    next: u64,
    text: String,
    turns: usize,
    forms: Forms<'a>,
    /// Bytes for the next value.
    form: Option<Vec<u8>>,
}

impl Sampler<'_> {
    /// Returns a number; all numbers of a sample differ, as far as `bits` allow it.
    fn number(&mut self, name: &str, bits: u32) -> u64 {
        self.next += 1;
        let number = (self.next * 0x0101 + self.turn as u64) & (u64::MAX >> (64 - bits));
        self.show(format_args!("{name} {number}"));
        number
    }

    fn show(&mut self, what: impl Display) {
        let _ = write!(self.text, "{what}");
    }

    fn bytes(&mut self) -> Vec<u8> {
        if let Some(form) = self.form.take() {
            return form;
        }
        let number = self.number("bytes", 16);
        number.to_be_bytes()[6..].to_vec()
    }

    /// Visits `count` values, one after the other, each with its name written before it.
    fn each<'de, V: Visitor<'de>>(
        &mut self,
        names: &[&str],
        count: usize,
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.show("{");
        let value = visitor.visit_seq(Each { sampler: self, names, at: 0, count })?;
        self.show("}");
        Ok(value)
    }
}

struct Each<'s, 'a, 'n> {
    sampler: &'s mut Sampler<'a>,
    names: &'n [&'n str],
    at: usize,
    count: usize,
}

impl<'de> SeqAccess<'de> for Each<'_, '_, '_> {
    type Error = SampleError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SampleError> {
        if self.at == self.count {
            return Ok(None);
        }
        if self.at > 0 {
            self.sampler.show(", ");
        }
        if let Some(name) = self.names.get(self.at) {
            self.sampler.show(format_args!("{name}: "));
        }
        self.at += 1;
        seed.deserialize(&mut *self.sampler).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count - self.at)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $name:literal;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
            let number = self.number($name, (<$type>::BITS).min(63));
            visitor.$visit(number as $type)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Sampler<'_> {
    type Error = SampleError;

    numbers! {
        deserialize_u8 visit_u8 u8, "u8";
        deserialize_u16 visit_u16 u16, "u16";
        deserialize_u32 visit_u32 u32, "u32";
        deserialize_u64 visit_u64 u64, "u64";
        deserialize_u128 visit_u128 u128, "u128";
        deserialize_i32 visit_i32 i32, "i32";
        deserialize_i64 visit_i64 i64, "i64";
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        let is = self.turn % 2 == 1;
        self.show(is);
        visitor.visit_bool(is)
    }

    /// Leaked for the life of the process: types may borrow from what they read.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        self.next += 1;
        let text = format!("text {}", self.next);
        self.show(format_args!("{text:?}"));
        visitor.visit_borrowed_str(text.leak())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_borrowed_bytes(self.bytes().leak())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_byte_buf(self.bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        if self.turn == 0 {
            self.show("none");
            return visitor.visit_none();
        }
        self.show("some ");
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        self.show("nothing");
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.show(name);
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.show(format_args!("{name} "));
        self.form = (self.forms)(name, self.turn);
        if let Some(form) = &self.form {
            let shown = format!("row {}", hex(form));
            self.show(shown);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        let count = self.turn.min(2);
        self.show("list ");
        self.each(&[], count, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.each(&[], len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.show(format_args!("{name} "));
        self.each(&[], len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.show(format_args!("{name} "));
        self.each(fields, fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        let chosen = self.turn % variants.len();
        self.turns = self.turns.max(variants.len());
        self.show(format_args!("{name}::{} ", variants[chosen]));
        visitor.visit_enum(Chosen { sampler: self, variant: chosen as u32 })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, SampleError> {
        Err(SampleError::custom("a type that asks what comes is never sent"))
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    serde::forward_to_deserialize_any! { i8 i16 f32 f64 char map identifier ignored_any }
}

struct Chosen<'s, 'a> {
    sampler: &'s mut Sampler<'a>,
    variant: u32,
}

impl<'de> EnumAccess<'de> for Chosen<'_, '_> {
    type Error = SampleError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Self), SampleError> {
        let number: U32Deserializer<SampleError> = self.variant.into_deserializer();
        Ok((seed.deserialize(number)?, self))
    }
}

impl<'de> VariantAccess<'de> for Chosen<'_, '_> {
    type Error = SampleError;

    fn unit_variant(self) -> Result<(), SampleError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, SampleError> {
        seed.deserialize(self.sampler)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.sampler.each(&[], len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.sampler.each(fields, fields.len(), visitor)
    }
}

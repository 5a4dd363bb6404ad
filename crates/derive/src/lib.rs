//! The derives of the crate `quorate`, which documents what they make.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result, parse_macro_input};

/// Derives `quorate::State` for a struct of maps and cells with one lifetime.
#[proc_macro_derive(State)]
pub fn state(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    answer(state_of(&parse_macro_input!(input as DeriveInput)))
}

/// Derives `quorate::Value` for a struct or an enum whose fields are values.
#[proc_macro_derive(Value)]
pub fn value(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    answer(value_of(&parse_macro_input!(input as DeriveInput)))
}

/// Derives `quorate::Key` for a struct or an enum whose fields are keys. The order is that of the variants, then of the
/// fields.
#[proc_macro_derive(Key)]
pub fn key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    answer(key_of(&parse_macro_input!(input as DeriveInput)))
}

/// Derives `quorate::Operation`, and `quorate::Value` with it, for an enum. The attribute `#[read_only]`
/// marks variants that change nothing.
#[proc_macro_derive(Operation, attributes(read_only))]
pub fn operation(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    answer(operation_of(&parse_macro_input!(input as DeriveInput)))
}

fn answer(made: Result<TokenStream>) -> proc_macro::TokenStream {
    made.unwrap_or_else(|error| error.to_compile_error()).into()
}

fn state_of(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(name.span(), "a state is a struct of maps and cells"));
    };
    let lifetimes: Vec<_> = input.generics.lifetimes().collect();
    if lifetimes.len() != 1 || input.generics.params.len() != 1 {
        return Err(Error::new(
            input.generics.span(),
            "a state has one lifetime and no other parameters, as in `struct Bank<'a> { balance: Map<'a, String, u64> }`",
        ));
    }
    let fields = named(&data.fields, name)?;
    let places = 0..u32::try_from(fields.len()).unwrap_or(u32::MAX);
    Ok(quote! {
        impl<'a> ::quorate::State<'a> for #name<'a> {
            fn open(pages: ::quorate::private::Pages<'a>) -> Self {
                Self { #(#fields: ::quorate::private::Field::open(pages, #places),)* }
            }
        }

        impl ::quorate::private::Family for #name<'static> {
            type At<'a> = #name<'a>;
        }
    })
}

fn operation_of(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(name.span(), "operations are an enum: one variant for each"));
    };
    let value = value_of(input)?;
    let read_only = data.variants.iter().map(|variant| {
        let ident = &variant.ident;
        let marked = variant.attrs.iter().any(|attribute| attribute.path().is_ident("read_only"));
        quote! { Self::#ident { .. } => #marked, }
    });
    Ok(quote! {
        #value

        impl ::quorate::Operation for #name {
            fn is_read_only(&self) -> bool {
                match self { #(#read_only)* }
            }
        }
    })
}

fn value_of(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), "a value has no parameters"));
    }
    let body = match &input.data {
        Data::Struct(data) => struct_value(&named(&data.fields, name)?),
        Data::Enum(data) if !data.variants.is_empty() && data.variants.len() <= 256 => {
            let variants: Result<Vec<_>> = data
                .variants
                .iter()
                .map(|variant| Ok((&variant.ident, named(&variant.fields, &variant.ident)?)))
                .collect();
            enum_value(&variants?)
        }
        Data::Enum(_) => return Err(Error::new(name.span(), "a value has from 1 to 256 variants")),
        Data::Union(_) => return Err(Error::new(name.span(), "a union is not a value")),
    };
    Ok(quote! { impl ::quorate::Value for #name { #body } })
}

fn key_of(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), "a key has no parameters"));
    }
    let (encode_key, decode_key, encode_part, decode_part) = match &input.data {
        Data::Struct(data) => {
            let fields = named(&data.fields, name)?;
            let (encode_key, encode_part) = (key_encoding(&fields, true), key_encoding(&fields, false));
            let (decode_key, decode_part) = (key_decoding(&fields, true), key_decoding(&fields, false));
            (
                quote! { let Self { #(#fields),* } = self; #encode_key },
                quote! { #decode_key ::std::option::Option::Some(Self { #(#fields),* }) },
                quote! { let Self { #(#fields),* } = self; #encode_part },
                quote! { #decode_part ::std::option::Option::Some(Self { #(#fields),* }) },
            )
        }
        Data::Enum(data) if !data.variants.is_empty() && data.variants.len() <= 256 => {
            let variants: Result<Vec<_>> = data
                .variants
                .iter()
                .map(|variant| Ok((&variant.ident, named(&variant.fields, &variant.ident)?)))
                .collect();
            let variants = variants?;
            let encode = |whole: bool| {
                let arms = (0..=u8::MAX).zip(&variants).map(|(tag, (ident, fields))| {
                    let body = key_encoding(fields, whole);
                    quote! { Self::#ident { #(#fields),* } => { out.push(#tag); #body } }
                });
                quote! { match self { #(#arms)* } }
            };
            let decode = |whole: bool| {
                let arms = (0..=u8::MAX).zip(&variants).map(|(tag, (ident, fields))| {
                    let body = key_decoding(fields, whole);
                    quote! { #tag => { #body ::std::option::Option::Some(Self::#ident { #(#fields),* }) } }
                });
                quote! {
                    let tag = <u8 as ::quorate::Key>::decode_part(&mut *bytes)?;
                    match tag { #(#arms)* _ => ::std::option::Option::None }
                }
            };
            (encode(true), decode(true), encode(false), decode(false))
        }
        Data::Enum(_) => return Err(Error::new(name.span(), "a key has from 1 to 256 variants")),
        Data::Union(_) => return Err(Error::new(name.span(), "a union is not a key")),
    };
    Ok(quote! {
        #[allow(unused_variables, reason = "keys without fields")]
        impl ::quorate::Key for #name {
            fn encode_key(&self, out: &mut ::std::vec::Vec<u8>) { #encode_key }

            fn decode_key(bytes: &[u8]) -> ::std::option::Option<Self> {
                let mut rest = bytes;
                let bytes = &mut rest;
                #decode_key
            }

            fn encode_part(&self, out: &mut ::std::vec::Vec<u8>) { #encode_part }

            fn decode_part(bytes: &mut &[u8]) -> ::std::option::Option<Self> { #decode_part }
        }
    })
}

/// Encodes fields: all as parts, or, of a whole key, the last one as a whole key.
fn key_encoding(fields: &[&Ident], whole: bool) -> TokenStream {
    let each = fields.iter().enumerate().map(|(at, field)| {
        if whole && at + 1 == fields.len() {
            quote! { ::quorate::Key::encode_key(#field, out); }
        } else {
            quote! { ::quorate::Key::encode_part(#field, out); }
        }
    });
    quote! { #(#each)* }
}

/// Decodes fields into variables of their names. Of a whole key, nothing may be left.
fn key_decoding(fields: &[&Ident], whole: bool) -> TokenStream {
    let each = fields.iter().enumerate().map(|(at, field)| {
        if whole && at + 1 == fields.len() {
            quote! { let #field = ::quorate::Key::decode_key(*bytes)?; }
        } else {
            quote! { let #field = ::quorate::Key::decode_part(&mut *bytes)?; }
        }
    });
    let end = (whole && fields.is_empty())
        .then(|| quote! { if !bytes.is_empty() { return ::std::option::Option::None; } });
    quote! { #(#each)* #end }
}

fn struct_value(fields: &[&Ident]) -> TokenStream {
    let names = fields.iter().map(ToString::to_string);
    let names_again = names.clone();
    quote! {
        fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
            let _level = ::quorate::private::Level::encode();
            #(::quorate::Value::encode(&self.#fields, out);)*
        }

        fn decode(bytes: &mut &[u8]) -> ::std::option::Option<Self> {
            let _level = ::quorate::private::Level::decode()?;
            ::std::option::Option::Some(Self { #(#fields: ::quorate::Value::decode(bytes)?,)* })
        }

        fn to_json(&self) -> ::quorate::private::Json {
            ::quorate::private::named(::std::vec![#((#names, ::quorate::Value::to_json(&self.#fields)),)*])
        }

        fn from_json(json: &::quorate::private::Json) -> ::std::result::Result<Self, ::std::string::String> {
            ::std::result::Result::Ok(Self { #(#fields: ::quorate::private::field(json, #names_again)?,)* })
        }

        fn draw(dice: &mut ::quorate::private::Dice) -> Self {
            Self { #(#fields: ::quorate::Value::draw(dice),)* }
        }
    }
}

fn enum_value(variants: &[(&Ident, Vec<&Ident>)]) -> TokenStream {
    let arm = |make: &dyn Fn(u8, &Ident, &[&Ident]) -> TokenStream| -> Vec<TokenStream> {
        (0..=u8::MAX).zip(variants).map(|(tag, (ident, fields))| make(tag, ident, fields)).collect()
    };
    let encode = arm(&|tag, ident, fields| {
        quote! { Self::#ident { #(#fields),* } => {
            out.push(#tag);
            #(::quorate::Value::encode(#fields, out);)*
        } }
    });
    let decode = arm(&|tag, ident, fields| {
        quote! { #tag => Self::#ident { #(#fields: ::quorate::Value::decode(bytes)?,)* }, }
    });
    let to_json = arm(&|_, ident, fields| {
        let (name, names) = (ident.to_string(), fields.iter().map(ToString::to_string));
        quote! { Self::#ident { #(#fields),* } => ::quorate::private::tagged(
            #name, ::std::vec![#((#names, ::quorate::Value::to_json(#fields)),)*]
        ), }
    });
    let from_json = arm(&|_, ident, fields| {
        let (name, names) = (ident.to_string(), fields.iter().map(ToString::to_string));
        quote! { #name => Self::#ident { #(#fields: ::quorate::private::field(body, #names)?,)* }, }
    });
    let draw = arm(&|tag, ident, fields| {
        let number = u64::from(tag);
        quote! { #number => Self::#ident { #(#fields: ::quorate::Value::draw(dice),)* }, }
    });
    let names: Vec<_> = variants.iter().map(|(ident, _)| ident.to_string()).collect();
    let count = u64::try_from(variants.len()).unwrap_or(u64::MAX);
    quote! {
        fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
            let _level = ::quorate::private::Level::encode();
            match self { #(#encode)* }
        }

        fn decode(bytes: &mut &[u8]) -> ::std::option::Option<Self> {
            let _level = ::quorate::private::Level::decode()?;
            let (tag, rest) = bytes.split_first()?;
            *bytes = rest;
            ::std::option::Option::Some(match *tag { #(#decode)* _ => return ::std::option::Option::None })
        }

        fn to_json(&self) -> ::quorate::private::Json {
            match self { #(#to_json)* }
        }

        #[allow(unused_variables, reason = "variants without fields")]
        fn from_json(json: &::quorate::private::Json) -> ::std::result::Result<Self, ::std::string::String> {
            let (name, body) = ::quorate::private::untagged(json, &[#(#names),*])?;
            ::std::result::Result::Ok(match name {
                #(#from_json)*
                _ => return ::std::result::Result::Err(::std::string::String::from("no such variant")),
            })
        }

        fn draw(dice: &mut ::quorate::private::Dice) -> Self {
            match dice.below(#count) {
                #(#draw)*
                _ => unreachable!("below the number of variants"),
            }
        }
    }
}

/// Returns the names of fields; a variant may have none at all.
fn named<'a>(fields: &'a Fields, of: &Ident) -> Result<Vec<&'a Ident>> {
    match fields {
        Fields::Unit => Ok(Vec::new()),
        Fields::Named(fields) => Ok(fields.named.iter().filter_map(|field| field.ident.as_ref()).collect()),
        Fields::Unnamed(_) => Err(Error::new(of.span(), "fields need names, which people read in JSON")),
    }
}

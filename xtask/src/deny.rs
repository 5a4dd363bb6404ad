//! What we depend on: licences that we may use, the one registry, and no crate in two versions
//! without a reason. Read from `cargo metadata`, so that nothing has to be installed.
//!
//! Advisories need a database that is not part of this repository; this task does not claim to
//! look at them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use xtask::{cargo, read};

/// Licences that may be combined with ours.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that may stand in the lock file in two versions, each with the reason.
const TWICE: &[(&str, &str)] = &[
    ("miniz_oxide", "png uses 0.8 to write and 0.9 to read; pictures of experiments are written alone"),
    ("hashbrown", "ed25519-zebra uses 0.16; 0.17 is named by an optional part of toml, and not built"),
    ("syn", "derives of curve25519-dalek and zeroize use 2, those of clap use 3; only at build time"),
];

/// What a crate must not depend on without its features, so that those who do not need it do not build it.
const LEAN: &[(&str, &[&str])] = &[
    ("quorate", &["quorate-sim", "clap", "tracing-subscriber"]),
    ("quorate-cli", &["resvg"]),
    ("quorate-node", &["clap", "tokio"]),
    ("quorate-quorum-node", &["rsa"]),
    ("quorate-quorum-sim", &["rsa"]),
];

/// Crates with an open advisory, each with the advisory, who alone may depend on it, and why.
const EXCUSED: &[(&str, &str, &str, &str)] = &[(
    "rsa",
    "RUSTSEC-2023-0071",
    "quorate-bench",
    "no release is without it: the time of a signature tells of the key. Experiments measure RSA with keys that are made \
     from a public seed; no server and no client of a user signs with it",
)];

/// A package, as far as this check looks.
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
}

/// Checks every package in the lock file.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(first) = args.first() {
        bail!("deny takes no arguments, got `{first}`");
    }
    let text = read(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))?;
    let packages = packages(&serde_json::from_str(&text).context("cargo metadata printed something else")?);
    let mut broken = check(&packages);
    for (name, refused) in LEAN {
        let tree = read(&mut cargo(&[
            "tree",
            "--locked",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
        ]))?;
        broken.extend(heavy(name, &tree, refused));
    }
    let metadata = serde_json::from_str(&text).context("cargo metadata printed something else")?;
    for (name, advisory, owner, _) in EXCUSED {
        broken.extend(misused(&metadata, (name, advisory, owner)));
    }
    for line in &broken {
        eprintln!("deny: {line}");
    }
    if !broken.is_empty() {
        bail!("{} dependencies break a rule", broken.len());
    }
    println!("deny: {} packages, licences and versions in order", packages.len());
    Ok(())
}

/// Finds who depends on a crate with an open advisory, beside the one that may.
fn misused(metadata: &Value, (name, advisory, owner): (&str, &str, &str)) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let users: Vec<&str> = packages
        .iter()
        .filter(|package| {
            let list = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().any(|dependency| dependency["name"] == *name)
        })
        .filter_map(|package| package["name"].as_str())
        .collect();
    if users.is_empty() {
        return vec![format!("nobody depends on {name}: drop its excuse")];
    }
    let strangers = users.into_iter().filter(|user| *user != owner);
    strangers
        .map(|user| format!("{user} depends on {name} ({advisory}), which is for {owner} alone"))
        .collect()
}

fn packages(metadata: &Value) -> Vec<Package> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|package| Package {
            name: text(&package["name"]).unwrap_or_default(),
            version: text(&package["version"]).unwrap_or_default(),
            licence: text(&package["license"]),
            source: text(&package["source"]),
        })
        .collect()
}

/// Finds what a crate must not depend on in the output of `cargo tree`.
fn heavy(name: &str, tree: &str, refused: &[&str]) -> Vec<String> {
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let mut broken: Vec<String> = refused
        .iter()
        .filter(|refused| crates.contains(*refused))
        .map(|refused| format!("{name} depends on {refused} without a feature that needs it"))
        .collect();
    if !crates.contains(name) {
        broken.push(format!("cargo tree does not show {name}"));
    }
    broken
}

fn check(packages: &[Package]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
        let licence = package.licence.as_deref().unwrap_or("none");
        if !admits(licence) {
            broken
                .push(format!("{} {}: licence {licence} is not in the list", package.name, package.version));
        }
        if let Some(source) = &package.source
            && !source.starts_with("registry+")
        {
            broken.push(format!(
                "{} {}: comes from {source}, not from the registry",
                package.name, package.version
            ));
        }
    }
    for (name, versions) in versions {
        let excused = TWICE.iter().any(|(twice, _)| *twice == name);
        if excused && versions.len() == 1 {
            broken.push(format!("{name} is there in one version: drop its excuse"));
        }
        if versions.len() > 1 && !excused {
            let versions: Vec<&str> = versions.into_iter().collect();
            broken.push(format!("{name} is there in {} versions: {}", versions.len(), versions.join(", ")));
        }
    }
    broken
}

/// Says whether one may use what stands under this SPDX expression. `/` is the old spelling of OR.
fn admits(expression: &str) -> bool {
    let bare = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let any = |part: &str| LICENCES.contains(&part.trim());
    // AND binds closer than OR. With parentheses gone, `A AND (B OR C)` is read as `(A AND B) OR C`,
    // so every licence in an expression that has both must be admitted.
    if bare.contains(" AND ") && bare.contains(" OR ") {
        return bare.split(" OR ").flat_map(|part| part.split(" AND ")).all(any);
    }
    bare.split(" OR ").any(|choice| choice.split(" AND ").all(any))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, licence: &str, source: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: Some(licence.to_owned()),
            source: Some(source.to_owned()),
        }
    }

    #[test]
    fn what_a_crate_draws_in_without_need_is_found() {
        let tree = "quorate v0.1.0 (/x)\nquorate-node v0.1.0 (/y)\nserde v1.0.0\n";
        assert!(heavy("quorate", tree, &["clap", "quorate-sim"]).is_empty());
        let fat = format!("{tree}clap v4.0.0\n");
        assert_eq!(heavy("quorate", &fat, &["clap", "quorate-sim"]).len(), 1);
        assert_eq!(heavy("quorate", "", &["clap"]).len(), 1, "an empty tree shows nothing");
    }

    #[test]
    fn a_choice_of_licences_needs_one_that_we_may_use() {
        assert!(admits("MIT OR GPL-3.0"));
        assert!(admits("MIT/Apache-2.0"));
        assert!(admits("MIT AND BSD-3-Clause"));
        assert!(admits("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!admits("GPL-3.0"));
        assert!(!admits("MIT AND GPL-3.0"));
        assert!(!admits("(MIT OR Apache-2.0) AND GPL-3.0"));
        assert!(!admits("none"));
    }

    #[test]
    fn two_versions_a_foreign_source_and_a_bad_licence_are_told() {
        let registry = "registry+https://example.org/index";
        let fine = package("a", "1.0.0", "MIT", registry);
        assert!(check(&[fine]).is_empty());
        let broken = check(&[
            package("a", "1.0.0", "MIT", registry),
            package("a", "2.0.0", "MIT", registry),
            package("b", "1.0.0", "MIT", "git+https://example.org/b"),
            package("c", "1.0.0", "AGPL-3.0", registry),
        ]);
        assert_eq!(broken.len(), 3, "{broken:?}");
        assert_eq!(
            check(&[package("syn", "3.0.0", "MIT", registry)]).len(),
            1,
            "an excuse that is not needed"
        );
    }
}

//! Runs the official files that need no runtime. There is only one quick test, because mutation
//! testing runs it hundreds of times. `cargo xtask spec-test` runs all files on every runtime.

use std::path::Path;

use sdam_spec::corpus::Corpus;
use sdam_spec::suite::Suite;

#[test]
fn the_pure_code_agrees_with_every_official_file() {
    let folder = std::env::var_os("SDAM_SPEC_CORPUS")
        .expect("set SDAM_SPEC_CORPUS to the folder of the official files");
    let corpus = Corpus::open(Path::new(&folder)).unwrap();
    let mut passed = 0;
    for suite in Suite::ALL {
        let Some(check) = suite.pure else { continue };
        for file in corpus.files(suite.folder).unwrap() {
            let verdict = check(&file.json);
            assert_eq!(verdict, Ok(()), "{}/{}", suite.name(), file.name);
            passed += 1;
        }
    }
    assert!(passed > 0, "there is no pure suite");
}

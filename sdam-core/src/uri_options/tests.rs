use super::{driver, table};

#[test]
fn every_method_of_driver_options_reads_an_option_of_the_table() {
    for name in driver::LOOKED_UP {
        let (row, alias) = table::find(name).unwrap();
        assert_eq!(row.name, *name);
        assert!(alias.is_none(), "{name}");
        assert!(row.user == table::User::Driver, "{name}");
    }
}

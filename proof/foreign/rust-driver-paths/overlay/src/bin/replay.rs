fn main() {
    mongodb::model_paths::main();
}

/** The config of a language model so small that a step takes a millisecond. */
export const TINY_MODEL = {
  program: "language_model",
  context_length: 16,
  hidden_size: 16,
  layers: 1,
  heads: 2,
  kv_heads: 1,
  intermediate_size: 32,
  batch_size: 4,
  seed: 7,
};

/** A text that it learns something of. */
export const TEXT = "the heddle guides the warp; the shuttle carries the weft. ".repeat(20);

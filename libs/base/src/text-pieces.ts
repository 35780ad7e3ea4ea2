/** Length from which text becomes a piece. */
const PIECE_LENGTH = 65_536;

/** A long text as UTF-8 pieces, so that no single turn encodes it whole. */
export class TextPieces {
  readonly #pieces: Buffer[] = [];
  #text = "";

  add(text: string): void {
    this.#text += text;
    if (this.#text.length >= PIECE_LENGTH) this.#cut();
  }

  /** The pieces in order; call it once, at the end. */
  end(): readonly Buffer[] {
    if (this.#text !== "") this.#cut();
    return this.#pieces;
  }

  #cut(): void {
    this.#pieces.push(Buffer.from(this.#text));
    this.#text = "";
  }
}

import { Readable } from "node:stream";
import { TextPieces } from "@heddle/base/text-pieces";
import type { FastifyReply } from "fastify";

export const JSON_TYPE = "application/json; charset=utf-8";

/** The JSON of an object whose last member is a long list, written item by item. */
export class JsonList {
  readonly #text = new TextPieces();
  #separator = "";

  add(item: unknown): void {
    this.#text.add(this.#separator + JSON.stringify(item));
    this.#separator = ",";
  }

  /** The whole text: `members`, then the list under `name`. */
  end(members: object, name: string): readonly Buffer[] {
    this.#text.add("]}");
    const head = JSON.stringify({ ...members, [name]: [] });
    return [Buffer.from(head.slice(0, -"]}".length)), ...this.#text.end()];
  }
}

/** Sends a body in pieces, with turns of the event loop between them. */
export function sendPieces(
  reply: FastifyReply,
  contentType: string,
  pieces: readonly Buffer[],
): void {
  const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
  reply
    .headers({ "content-type": contentType, "content-length": bytes })
    .send(Readable.from(pieces));
}

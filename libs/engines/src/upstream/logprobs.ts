import { isJsonObject, type JsonObject } from "@heddle/base/json-object";
import type { TokenLogprob } from "@heddle/contracts/engine";
import { garbage } from "./upstream-fault.ts";

type Scored = Pick<TokenLogprob, "token" | "bytes" | "logprob">;

/**
 * The scores of one piece: chats and completions have forms of their own. `isPromptStart`: the first
 * token may have none.
 */
export function tokenLogprobs(value: unknown, isPromptStart = false): TokenLogprob[] {
  if (value == null) return [];
  if (!isJsonObject(value)) throw garbage("log-probabilities that are not an object");
  const { content, tokens } = value;
  if (Array.isArray(content)) return content.map(chatLogprob);
  if (Array.isArray(tokens)) {
    return tokens.map((token, at) => textLogprob(value, token, at, isPromptStart && at === 0));
  }
  if (content === null) return [];
  throw garbage("log-probabilities of an unknown form");
}

/** Where the tokens of a completion's piece begin in its choice's text. */
export function textOffsets(value: unknown): readonly number[] {
  const offsets = isJsonObject(value) ? value["text_offset"] : undefined;
  return Array.isArray(offsets) ? offsets.map(Number) : [];
}

function chatLogprob(value: unknown): TokenLogprob {
  const top = isJsonObject(value) ? (value["top_logprobs"] ?? []) : undefined;
  if (!Array.isArray(top)) throw garbage("log-probabilities without alternatives");
  return { ...scored(value), top: top.map(scored) };
}

function scored(value: unknown): Scored {
  if (!isJsonObject(value)) throw garbage("a log-probability that is not an object");
  const { token, logprob, bytes } = value;
  if (Array.isArray(bytes)) return { ...score(token, logprob), bytes: bytes.map(Number) };
  return score(token, logprob);
}

function score(token: unknown, logprob: unknown): Scored {
  if (typeof token !== "string" || typeof logprob !== "number") {
    throw garbage("a log-probability without its token or number");
  }
  return { token, bytes: [...Buffer.from(token)], logprob };
}

function textLogprob(
  value: JsonObject,
  token: unknown,
  at: number,
  mayLack: boolean,
): TokenLogprob {
  const { token_logprobs: all, top_logprobs: tops } = value;
  const own: unknown = Array.isArray(all) ? all[at] : undefined;
  const top: unknown = Array.isArray(tops) ? tops[at] : undefined;
  const others = isJsonObject(top) ? Object.entries(top) : [];
  return {
    ...score(token, mayLack && own === null ? Number.NaN : own),
    top: others.map(([text, logprob]) => score(text, logprob)),
  };
}

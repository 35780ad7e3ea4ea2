import type { TokenLogprob } from "@heddle/contracts/engine";
import { garbage } from "./upstream-fault.ts";
import { isObject, type JsonObject } from "./upstream-json.ts";

type Scored = Pick<TokenLogprob, "token" | "bytes" | "logprob">;

/** The scores of one piece: chats and completions have forms of their own. */
export function tokenLogprobs(value: unknown): TokenLogprob[] {
  if (value == null) return [];
  if (!isObject(value)) throw garbage("log-probabilities that are not an object");
  const { content, tokens } = value;
  if (Array.isArray(content)) return content.map(chatLogprob);
  if (Array.isArray(tokens)) return tokens.map((token, at) => textLogprob(value, token, at));
  if (content === null) return [];
  throw garbage("log-probabilities of an unknown form");
}

function chatLogprob(value: unknown): TokenLogprob {
  const top = isObject(value) ? (value["top_logprobs"] ?? []) : undefined;
  if (!Array.isArray(top)) throw garbage("log-probabilities without alternatives");
  return { ...scored(value), top: top.map(scored) };
}

function scored(value: unknown): Scored {
  if (!isObject(value)) throw garbage("a log-probability that is not an object");
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

function textLogprob(value: JsonObject, token: unknown, at: number): TokenLogprob {
  const { token_logprobs: own, top_logprobs: tops } = value;
  const top: unknown = Array.isArray(tops) ? tops[at] : undefined;
  const others = isObject(top) ? Object.entries(top) : [];
  return {
    ...score(token, Array.isArray(own) ? own[at] : undefined),
    top: others.map(([text, logprob]) => score(text, logprob)),
  };
}

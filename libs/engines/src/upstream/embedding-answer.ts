import { isJsonObject } from "@heddle/base/json-object";
import type { EngineEvent, Usage } from "@heddle/contracts/engine";
import { garbage } from "./upstream-fault.ts";
import { usageOf } from "./upstream-json.ts";

/** The events and the usage of an answer with one vector for each input. */
export function embeddingEvents(
  id: number,
  text: string,
  inputs: number,
): { readonly events: readonly EngineEvent[]; readonly usage: Usage } {
  const body = parsed(text);
  const data = isJsonObject(body) ? body["data"] : undefined;
  const usage = isJsonObject(body) ? usageOf(body["usage"]) : undefined;
  if (!Array.isArray(data) || data.length !== inputs || !usage) {
    throw garbage(`an answer without ${inputs} vectors or without its usage`);
  }
  const vectors = new Map(data.map(vectorOf));
  const { promptTokens, cachedTokens } = usage;
  const events: EngineEvent[] = [{ type: "started", id, promptTokens, cachedTokens, queuedMs: 0 }];
  for (let input = 0; input < inputs; input++) {
    const values = vectors.get(input);
    if (!values) throw garbage(`no vector of the input ${input}`);
    events.push({ type: "embedding", id, input, values });
  }
  return { events, usage };
}

function vectorOf(item: unknown): [number, Float32Array] {
  const { index, embedding } = isJsonObject(item) ? item : {};
  const isNumber = (value: unknown) => typeof value === "number" && Number.isFinite(value);
  const isVector = Array.isArray(embedding) && embedding.length > 0 && embedding.every(isNumber);
  if (!Number.isSafeInteger(index) || !isVector) throw garbage("an invalid vector");
  return [index as number, Float32Array.from(embedding as number[])];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw garbage("vectors that are not JSON");
  }
}

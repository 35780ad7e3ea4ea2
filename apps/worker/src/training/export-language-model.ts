import { AppError } from "@heddle/base/errors";
import {
  byteVocabulary,
  FIRST_BYTE_TOKEN,
  writeLlamaModel,
} from "@heddle/engines/gguf/llama-model";
import type { LanguageModelShape } from "@heddle/training/language-model/language-model";
import type { Parameters } from "@heddle/training/parameter-client";
import type { Lineage } from "./lineage.ts";

/** Bytes as tokens, and the few control tokens before them. */
const VOCABULARY = byteVocabulary([]);

/** The vocabulary's size, which a byte-level language model must have. */
export const BYTE_VOCABULARY_SIZE = VOCABULARY.tokens.length;

/** A model trained on plain text has no roles: the conversation's text is what it goes on from. */
const PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}";

/** The text as the model's tokens. */
export function encodeText(text: Uint8Array): Int32Array {
  return Int32Array.from(text, (byte) => byte + FIRST_BYTE_TOKEN);
}

/**
 * Writes a trained byte-level language model as a GGUF file that the inference engine serves, in
 * float32, so that it answers as it was trained; where it comes from stands in the metadata. Throws an AppError `invalid_value` where a tensor
 * is missing.
 */
export async function exportLanguageModel(
  path: string,
  shape: LanguageModelShape,
  parameters: Parameters,
  lineage: Pick<Lineage, "jobId" | "jobName" | "data" | "codeVersion" | "step">,
): Promise<void> {
  await writeLlamaModel(path, {
    name: lineage.jobName,
    shape: {
      embedding: shape.hidden_size,
      blocks: shape.layers,
      heads: shape.heads,
      kvHeads: shape.kv_heads,
      feedForward: shape.intermediate_size,
      contextTokens: shape.context_length,
      normEpsilon: shape.norm_epsilon,
      ropeBase: shape.rope_theta,
    },
    vocabulary: VOCABULARY,
    type: "F32",
    chatTemplate: PLAIN_TEMPLATE,
    metadata: new Map(
      Object.entries({
        "heddle.job_id": lineage.jobId,
        "heddle.data_sha256": lineage.data?.sha256 ?? "",
        "heddle.code_version": lineage.codeVersion,
        "heddle.step": String(lineage.step),
      }).map(([key, value]) => [key, { type: "string", value }]),
    ),
    weights: (name, columns, rows) => weightsOf(parameters, name, columns, rows),
  });
}

/** GGUF has a row for each output; a program's matrices have one for each input, but for look-ups. */
function weightsOf(
  parameters: Parameters,
  name: string,
  columns: number,
  rows: number,
): Float32Array {
  const data = parameters[`${name}.weight`];
  if (data?.length !== columns * rows) {
    const got = data === undefined ? "nothing" : `${data.length} numbers`;
    throw new AppError("invalid_value", `${name} has ${columns} x ${rows} weights, got ${got}`);
  }
  if (rows === 1 || name === "token_embd") return data;
  const turned = new Float32Array(data.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      turned[row * columns + column] = data[column * rows + row] ?? 0;
    }
  }
  return turned;
}

import { AppError } from "@heddle/base/errors";
import { type ByteVocabulary, writeLlamaModel } from "@heddle/engines/gguf/llama-model";
import {
  embeddingName,
  type LanguageModelShape,
} from "@heddle/training/language-model/language-model";
import type { Parameters } from "@heddle/training/parameter-client";
import type { Lineage } from "../data/lineage.ts";

/** A model trained on plain text has no roles: it continues the text of the conversation. */
const PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}";

/** The result of a job. */
export interface TrainedModel {
  readonly shape: LanguageModelShape;
  readonly vocabulary: ByteVocabulary;
  readonly parameters: Parameters;
  readonly lineage: Pick<
    Lineage,
    "jobId" | "jobName" | "data" | "tokenizer" | "codeVersion" | "step"
  >;
}

/**
 * Writes a trained language model as a GGUF file for the inference engine, in float32, so that it
 * answers as trained. Throws an AppError `invalid_value` where a tensor is missing.
 */
export async function exportLanguageModel(
  path: string,
  { shape, vocabulary, parameters, lineage }: TrainedModel,
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
    vocabulary,
    type: "F32",
    chatTemplate: PLAIN_TEMPLATE,
    metadata: new Map(
      Object.entries({
        "heddle.job_id": lineage.jobId,
        "heddle.data_sha256": lineage.data?.sha256 ?? "",
        ...(lineage.tokenizer?.sha256 && { "heddle.tokenizer_sha256": lineage.tokenizer.sha256 }),
        "heddle.code_version": lineage.codeVersion,
        "heddle.step": String(lineage.step),
      }).map(([key, value]) => [key, { type: "string", value }]),
    ),
    weights: (name, columns, rows) =>
      name === "token_embd"
        ? found(parameters, embeddingName(shape), columns, rows)
        : weightsOf(parameters, name, columns, rows),
  });
}

/**
 * GGUF has a row for each output; a program's matrices have one for each input, except look-up
 * tables.
 */
function weightsOf(
  parameters: Parameters,
  name: string,
  columns: number,
  rows: number,
): Float32Array {
  const data = found(parameters, name, columns, rows);
  if (rows === 1) return data;
  const turned = new Float32Array(data.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      turned[row * columns + column] = data[column * rows + row] ?? 0;
    }
  }
  return turned;
}

function found(parameters: Parameters, name: string, columns: number, rows: number): Float32Array {
  const data = parameters[`${name}.weight`];
  if (data?.length === columns * rows) return data;
  const got = data === undefined ? "nothing" : `${data.length} numbers`;
  throw new AppError("invalid_value", `${name} has ${columns} x ${rows} weights, got ${got}`);
}

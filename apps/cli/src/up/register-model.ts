import { stat } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { AppError } from "@heddle/base/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { ModelSpec } from "@heddle/contracts/api/models";
import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import { modelIdOf } from "./model-id.ts";

/** Registers a local GGUF file under a model id made from its name, and returns that id. */
export async function registerModelFile({ models }: Heddle, path: string): Promise<string> {
  const id = modelIdOf(path);
  // From its size the cluster knows that workers must divide it.
  const { size } = await stat(path);
  const weights = { file: `${id}.gguf`, sources: [pathToFileURL(path).href], size_bytes: size };
  const contextWindow = await contextWindowOf(path);
  const body: ModelSpec = {
    id,
    weights,
    replicas: "every-worker" as const,
    ...(contextWindow !== undefined && { context_window: contextWindow }),
  };
  await models.register(body);
  return id;
}

/** The context length that the file's metadata names, if any. */
async function contextWindowOf(path: string): Promise<number | undefined> {
  try {
    const { metadata } = await readGguf(path);
    const architecture = metadata.get("general.architecture")?.value;
    const length = metadata.get(`${architecture}.context_length`)?.value;
    return Number.isSafeInteger(length) && Number(length) > 0 ? Number(length) : undefined;
  } catch (error) {
    // The worker that loads a damaged file reports it once, with the remedy.
    if (error instanceof AppError) return undefined;
    throw error;
  }
}

/** Removes a registered model, so that a later start does not load its file again. */
export async function removeModelFile({ models }: Heddle, id: string): Promise<void> {
  await models.remove(id);
}

import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import type { ApiClient } from "../http/api-client.ts";

/** Registers a local GGUF file under a model id made of its name, and returns that id. */
export async function registerModelFile(client: ApiClient, path: string): Promise<string> {
  const name = basename(path, ".gguf").replace(/[^A-Za-z0-9._-]/g, "-");
  const id = name.replace(/^[^A-Za-z0-9]+/, "") || "model";
  const weights = { file: `${id}.gguf`, sources: [pathToFileURL(path).href] };
  const body = { id, weights, replicas: "every-worker" };
  await client.json("/api/v1/models", { method: "POST", body });
  return id;
}

/** Takes a registered model out again, so that a later start does not load its file once more. */
export async function removeModelFile(client: ApiClient, id: string): Promise<void> {
  await client.json(`/api/v1/models/${encodeURIComponent(id)}`, { method: "DELETE" });
}

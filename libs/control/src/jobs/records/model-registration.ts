import type { SubmitJob } from "@heddle/contracts/api/job-spec";

/** The artifact that becomes a model. */
export const MODEL_ARTIFACT = "model.gguf";

/** The id under which the job's model is to be served; undefined if the job names none. */
export function registrationOf(
  spec: SubmitJob,
): { readonly modelId: string; readonly replaces: boolean } | undefined {
  const { register_as: modelId, replace_model: replaces } = spec.config;
  if (spec.algorithm === undefined || typeof modelId !== "string") return undefined;
  return { modelId, replaces: replaces === true };
}

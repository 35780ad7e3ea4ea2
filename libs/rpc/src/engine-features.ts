import type { EngineRequest } from "@heddle/contracts/engine";

/** What workers say that their engines know: an older worker would ignore it in a request. */
export const ENGINE_FEATURES = ["adapters", "stages", "continuation"] as const;

type EngineFeature = (typeof ENGINE_FEATURES)[number];

/** The features without which a request would be answered as another one. */
export function featuresOf(request: EngineRequest): readonly EngineFeature[] {
  if (request.kind !== undefined) return [];
  const features: EngineFeature[] = [];
  if (request.adapter !== undefined) features.push("adapters");
  if (request.sent !== undefined) features.push("continuation");
  return features;
}

import type { EngineRequest } from "@heddle/contracts/engine";

/** What workers say that their engines know: an older worker would ignore it in a request. */
const ENGINE_FEATURES = ["adapters", "stages", "stage-devices", "continuation"] as const;

/** Begins the feature that says which others a worker's stages work with. */
const STAGE_BUILD = "stages of ";

type EngineFeature = (typeof ENGINE_FEATURES)[number];

/** A worker's features, whose stages are of this build. */
export function featuresWithStages(build: string): string[] {
  return [...ENGINE_FEATURES, `${STAGE_BUILD}${build}`];
}

/** The build of a worker's stages; empty where it does not say. */
export function stageBuildIn(features: readonly string[]): string {
  const said = features.find((feature) => feature.startsWith(STAGE_BUILD)) ?? "";
  return said.slice(STAGE_BUILD.length);
}

/** The features without which a request would be answered as another one. */
export function featuresOf(request: EngineRequest): readonly EngineFeature[] {
  if (request.kind !== undefined) return [];
  const features: EngineFeature[] = [];
  if (request.adapter !== undefined) features.push("adapters");
  if (request.sent !== undefined) features.push("continuation");
  return features;
}

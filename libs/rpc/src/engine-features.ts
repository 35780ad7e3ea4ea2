import type { EngineRequest } from "@heddle/contracts/engine";

/** What workers say that their engines know: an older worker would ignore it in a request. */
export const ENGINE_FEATURES = ["adapters", "stages"] as const;

type EngineFeature = (typeof ENGINE_FEATURES)[number];

/** The features without which a request would be answered as another one. */
export function featuresOf(request: EngineRequest): readonly EngineFeature[] {
  return request.kind === undefined && request.adapter !== undefined ? ["adapters"] : [];
}

import type { GenerateRequest } from "@heddle/contracts/engine";
import type { PartPlace } from "../../nodes/replicas/ready-replica.ts";

/** Choices of one prompt share its computation: fewer than these stay together. */
const LEAST_TOGETHER = 4;

/** Consecutive choices of one prompt, which one engine draws. */
export interface ChoicePart {
  /** The prompt's number in the call. */
  readonly prompt: number;
  /** Number in the call of the first choice; the choices of a prompt follow those of the one before. */
  readonly first: number;
  readonly request: GenerateRequest;
  /** Whether another part counts the tokens of the same prompt. */
  readonly sharesPrompt: boolean;
  readonly place: PartPlace;
}

/**
 * Divides the choices of a call over its model's replicas. `requests` has one for each prompt, all
 * with as many choices. Choice i has the seed that it has in a call that is not divided.
 */
export function choiceParts(requests: readonly GenerateRequest[], replicas: number): ChoicePart[] {
  const places: PartPlace[] = [];
  const perPrompt = Math.floor(replicas / requests.length);
  return requests.flatMap((request, prompt) => {
    const { choices, sampling } = request;
    const count = Math.max(1, Math.min(perPrompt, Math.floor(choices / LEAST_TOGETHER)));
    return Array.from({ length: count }, (_, part): ChoicePart => {
      const from = Math.floor((part * choices) / count);
      const own = Math.floor(((part + 1) * choices) / count) - from;
      const seed = sampling.seed === undefined ? undefined : (sampling.seed + from) % 2 ** 32;
      const place: PartPlace = { sequences: own, holder: undefined, siblings: places };
      places.push(place);
      return {
        prompt,
        first: prompt * choices + from,
        request:
          count === 1 ? request : { ...request, choices: own, sampling: { ...sampling, seed } },
        sharesPrompt: part > 0,
        place,
      };
    });
  });
}

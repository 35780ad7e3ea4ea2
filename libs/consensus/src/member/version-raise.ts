import type { Log } from "@heddle/observability/logger";
import type { Step } from "./agreement.ts";
import type { MemberAnswer } from "./ask-member.ts";

/** Masters of builds without cluster versions do not report one. */
const UNREPORTED_VERSION = 1;

interface VersionRaiseParts {
  /** The highest cluster version that this master supports. */
  readonly supported: number;
  readonly version: () => number;
  readonly raise: (version: number) => Promise<unknown>;
  readonly log: Log;
}

/** Raises the cluster version to the highest that all members support. */
export function versionRaise({ supported, version, raise, log }: VersionRaiseParts): Step {
  const supports = (answer: MemberAnswer) => (answer ? supportedBy(answer) : 0);
  return {
    waitText: "the cluster version rises when these masters run a build that supports the next",
    isDone: () => version() >= supported,
    isDue: () => true,
    accepts: (answer) => supports(answer) > version(),
    take: (answers) => {
      const common = Math.min(supported, ...answers.map(supports));
      log.info({ from: version(), to: common }, "the cluster version is raised");
      return raise(common);
    },
  };
}

/** The version that a master which introduces itself supports. */
export function supportedBy({ supports }: { readonly supports: number }): number {
  return supports || UNREPORTED_VERSION;
}

// A checker for Stryker that lets a sample of the mutants pass. It is the one place where Stryker shows
// all mutants at once; the others count as invalid, so that they are in no score.
import { createHash } from "node:crypto";
import { declareFactoryPlugin, PluginKind } from "@stryker-mutator/api/plugin";

/** The same mutants for one seed, whatever their order. */
class SampleChecker {
  static inject = ["options"];

  constructor(options) {
    this.options = options.heddleSample;
  }

  async init() {}

  async group(mutants) {
    return [mutants.map(({ id }) => id)];
  }

  async check(mutants) {
    const rank = ({ id }) =>
      createHash("sha256").update(`${this.options.seed} ${id}`).digest("hex");
    const drawn = mutants.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1));
    const passed = new Set(drawn.slice(0, this.options.size).map(({ id }) => id));
    return Object.fromEntries(
      mutants.map(({ id }) => [
        id,
        passed.has(id)
          ? { status: "passed" }
          : { status: "compileError", reason: "not in the sample" },
      ]),
    );
  }
}

const makeChecker = (injector) => injector.injectClass(SampleChecker);
makeChecker.inject = ["$injector"];

export const strykerPlugins = [declareFactoryPlugin(PluginKind.Checker, "sample", makeChecker)];

import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that failed last first, then the quickest: most mutants are found by the first that runs. */
export class QuickestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { cache } = this.ctx;
    const costOf = (file: TestSpecification) => {
      const result = cache.getTestSpecificationResult(file);
      return result?.failed ? 0 : (result?.duration ?? Number.POSITIVE_INFINITY);
    };
    return (await super.sort(files)).toSorted((a, b) => Math.sign(costOf(a) - costOf(b)) || 0);
  }
}

import { isTest, type SourceFile } from "../tidy/source-file.ts";
import { replaceGenerated } from "./generated-region.ts";
import { type HoldsTag, holdsTags } from "./holds-tags.ts";
import { parsePromises } from "./promises.ts";
import { verificationFaults, verificationTable } from "./verification-page.ts";

type ReadPage = (path: string) => string;

/** Each page with generated parts, as it should be; throws where the tests do not fit the promises. */
export function generatedPages(
  sources: readonly SourceFile[],
  read: ReadPage,
): ReadonlyMap<string, string> {
  return new Map([["docs/verification.md", verificationPage(testTags(sources), read)]]);
}

function testTags(sources: readonly SourceFile[]): HoldsTag[] {
  return sources.filter(({ path }) => isTest(path)).flatMap(holdsTags);
}

function verificationPage(tags: readonly HoldsTag[], read: ReadPage): string {
  const areas = parsePromises(read("docs/promises.yaml"));
  const faults = verificationFaults(areas, tags);
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return replaceGenerated(read("docs/verification.md"), "promises", verificationTable(areas, tags));
}

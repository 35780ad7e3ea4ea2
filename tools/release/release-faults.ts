/** What a release is made of, as far as versions and the tree are concerned. */
export interface ReleaseInput {
  /** The version in package.json. */
  readonly version: string;
  readonly chart: string;
  readonly dockerfile: string;
  readonly changelog: string;
  /** What `git status --porcelain` writes. */
  readonly changes: string;
}

/** Why this tree is no release. A trial may have changes and an entry of the changelog without a date. */
export function releaseFaults(input: ReleaseInput, isTrial: boolean): string[] {
  const { version, chart, dockerfile, changelog, changes } = input;
  const faults: string[] = [];
  for (const field of ["version", "appVersion"]) {
    const found = new RegExp(`^${field}: *"?([^"\\s]+)`, "m").exec(chart)?.[1];
    if (found === version) continue;
    faults.push(`helm/heddle/Chart.yaml has the ${field} ${found}, package.json ${version}`);
  }
  const image = /^ARG VERSION=(\S+)/m.exec(dockerfile)?.[1];
  if (image !== version) {
    faults.push(`deploy/images/Dockerfile has the VERSION ${image}, package.json ${version}`);
  }
  const heading = changelog.split("\n").find((line) => headingOf(line) === version);
  if (heading === undefined) faults.push(`CHANGELOG.md has no heading "## ${version}, DATE"`);
  if (isTrial) return faults;
  if (heading !== undefined && !/, \d{4}-\d\d-\d\d$/.test(heading)) {
    faults.push(`CHANGELOG.md has "${heading}": give it the date of the release, as 2030-01-31`);
  }
  const [first, ...others] = changes.split("\n").filter((line) => line !== "");
  if (first !== undefined) {
    const more = others.length > 0 ? ` and ${others.length} more` : "";
    faults.push(`the tree has changes (${first.trim()}${more}): commit them`);
  }
  return faults;
}

function headingOf(line: string): string | undefined {
  return /^## ([^\s,]+)/.exec(line)?.[1];
}

/**
 * The closing line of a test run, from vitest's JSON report and exit status. A file that could not
 * be loaded counts as one failure, as does a run that ended badly without a failed test. A run
 * without any test is not a success. A test that failed and then passed is named with what it failed
 * of: it is a defect to be mended, and no reason to throw the run away.
 */
export function summarize(report, status) {
  const passed = report?.numPassedTests ?? 0;
  const skipped = (report?.numPendingTests ?? 0) + (report?.numTodoTests ?? 0);
  const broken = (report?.testResults ?? []).filter(
    (file) => file.status === "failed" && file.assertionResults.every((t) => t.status !== "failed"),
  );
  let failed = (report?.numFailedTests ?? 0) + broken.length;
  if (failed === 0 && status !== 0) failed = 1;
  const tail = skipped > 0 ? `, ${skipped} skipped` : "";
  return {
    line: `${passed} passed, ${failed} failed${tail}`,
    unsteady: (report?.testResults ?? []).flatMap(unsteadyTests),
    ok: failed === 0 && passed > 0,
  };
}

function unsteadyTests({ name, assertionResults }) {
  return assertionResults
    .filter((test) => test.status === "passed" && test.failureMessages?.length > 0)
    .map((test) => `${name}: ${test.fullName}\n${test.failureMessages[0]}`);
}

/**
 * The closing line of a test run, from vitest's JSON report and exit status. A file that could not
 * be loaded counts as one failure, as does a run that ended badly without a failed test. A run
 * without any test is not a success.
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
  return { line: `${passed} passed, ${failed} failed${tail}`, ok: failed === 0 && passed > 0 };
}

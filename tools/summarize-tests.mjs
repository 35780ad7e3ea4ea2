/**
 * The closing line of a test run, from the results of vitest's JSON reports (a test file each) and
 * the exit status. A file that could not be loaded counts as one failure, as does a run that ended
 * badly without a failed test. A run without any test is not a success. A test that failed and then
 * passed is a defect to be repaired: it is named with its error, and the run continues. Failed tests are
 * named with the beginning of each error.
 */
export function summarize(files, status) {
  const tests = files.flatMap(({ assertionResults }) => assertionResults);
  const count = (...states) => tests.filter((test) => states.includes(test.status)).length;
  const broken = files.filter(
    (file) => file.status === "failed" && file.assertionResults.every((t) => t.status !== "failed"),
  );
  const passed = count("passed");
  const skipped = count("pending", "skipped", "todo");
  let failed = count("failed") + broken.length;
  if (failed === 0 && status !== 0) failed = 1;
  const tail = skipped > 0 ? `, ${skipped} skipped` : "";
  return {
    line: `${passed} passed, ${failed} failed${tail}`,
    unsteady: files.flatMap(unsteadyTests),
    failures: files.flatMap(failedTests),
    ok: failed === 0 && passed > 0,
  };
}

function unsteadyTests({ name, assertionResults }) {
  return assertionResults
    .filter((test) => test.status === "passed" && test.failureMessages?.length > 0)
    .map((test) => `${name}: ${test.fullName}\n${test.failureMessages[0]}`);
}

function failedTests({ name, status, message, assertionResults }) {
  const failed = assertionResults.filter((test) => test.status === "failed");
  if (failed.length === 0) return status === "failed" ? [`${name}: ${beginning(message)}`] : [];
  return failed.map(({ fullName, failureMessages = [] }) =>
    [`${name}: ${fullName}`, ...failureMessages.map(beginning)].join("\n  "),
  );
}

function beginning(message = "") {
  return message.trim().slice(0, 300).replaceAll("\n", "\n  ");
}

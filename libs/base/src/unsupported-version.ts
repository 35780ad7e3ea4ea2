/** A version of the state, a log or a snapshot that this build does not support. */
export class UnsupportedVersionError extends Error {
  constructor(what: string, version: number, newest: number) {
    super(
      `${what} has the cluster version ${version}, and this build supports versions up to ${newest}. Start this master with the build that the other masters run, or a newer one.`,
    );
    this.name = "UnsupportedVersionError";
  }
}

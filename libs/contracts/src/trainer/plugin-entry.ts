/** A plugin that a process is to load. */
export interface PluginEntry {
  /** An absolute path of a file or folder, or the name of an npm package. */
  readonly from: string;
  /** Where the names of packages are looked up; the working directory if absent. */
  readonly base?: string | undefined;
  /** Its settings. */
  readonly config?: unknown;
  /** Its files must have one of these digests; absent: any. */
  readonly digests?: readonly string[] | undefined;
}

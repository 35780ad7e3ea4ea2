/**
 * The used parts of https://webassembly.github.io/spec/js-api; TypeScript has them only in its DOM
 * types.
 */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object, imports: object) => { readonly exports: object };
};

/** The exports of a module in base64. */
export function instantiate<Exports>(base64: string, imports: object): Exports {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), imports);
  return instance.exports as Exports;
}

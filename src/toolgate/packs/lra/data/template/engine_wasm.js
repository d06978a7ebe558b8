  // wasm/lattice.wasm, its source beside it, is repeated here so that the paper also runs from a disk, where no file
  // may be fetched by a page.
  const MODULE = "{{module}}";
  let count;
  const bytes = Uint8Array.from(atob(MODULE), (char) => char.charCodeAt(0));
  const ready = WebAssembly.instantiate(bytes).then(({ instance }) => { count = instance.exports.count; });

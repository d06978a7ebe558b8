// Verifies an inclusion proof (RFC 9162, section 2.1.3.2) and the signed checkpoint it leads to, with the browser's own cryptography.
const place = document.querySelector("#proof-section");
const button = document.querySelector("#verify");
const state = document.querySelector("#proof-state");
const steps = document.querySelector("#proof-steps");
const utf8 = new TextEncoder();

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const fromBase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

async function hash(...parts) {
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) { joined.set(part, at); at += part.length; }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", joined));
}

export async function rootOf(leaf, index, size, path) {
  if (!(index < size)) throw new Error("the checkpoint does not cover the record");
  let node = leaf;
  let first = BigInt(index);
  let last = BigInt(size) - 1n;
  for (const sibling of path) {
    if (last === 0n) throw new Error("the proof is too long");
    if (first % 2n === 1n || first === last) {
      node = await hash(Uint8Array.of(1), sibling, node);
      while (first % 2n === 0n && first !== 0n) { first >>= 1n; last >>= 1n; }
    } else {
      node = await hash(Uint8Array.of(1), node, sibling);
    }
    first >>= 1n;
    last >>= 1n;
  }
  if (last !== 0n) throw new Error("the proof is too short");
  return node;
}

async function signedBy(note, key) {
  const [name, id, encoded] = [key.slice(0, key.indexOf("+")), key.split("+")[1], key.split("+").slice(2).join("+")];
  const raw = fromBase64(encoded);
  if (raw[0] !== 1 || raw.length !== 33) throw new Error("the log's key is not an Ed25519 key");
  const keyId = (await hash(utf8.encode(`${name}\n`), raw)).slice(0, 4);
  if (hex(keyId) !== id) throw new Error("the log's key has another id");
  const end = note.indexOf("\n\n");
  const text = note.slice(0, end + 1);
  const line = note.slice(end + 2).split("\n").find((each) => each.startsWith(`— ${name} `));
  if (!line) throw new Error("the checkpoint is not signed by the log's key");
  const signature = fromBase64(line.slice(`— ${name} `.length));
  if (hex(signature.slice(0, 4)) !== id) throw new Error("the checkpoint is signed by an earlier key of the log, or by none of its keys; toolgate audit prove follows a change of keys");
  const trusted = await crypto.subtle.importKey("raw", raw.slice(1), "Ed25519", false, ["verify"]);
  if (!(await crypto.subtle.verify("Ed25519", trusted, signature.slice(4), utf8.encode(text)))) throw new Error("the signature of the checkpoint is wrong");
  const [, size, root] = text.split("\n");
  return { size: Number(size), root: hex(fromBase64(root)) };
}

function say(text) {
  const item = document.createElement("li");
  item.textContent = text;
  steps.append(item);
}

async function verify() {
  steps.replaceChildren();
  state.textContent = "Asking for the proof …";
  const proof = await (await fetch(place.dataset.proof)).json();
  if (proof.fault) throw new Error(proof.fault);
  const leaf = await hash(Uint8Array.of(0), utf8.encode(proof.record));
  say(`✓ The record's hash is ${hex(leaf)}.`);
  const checkpoint = await signedBy(proof.checkpoint, place.dataset.key);
  say(`✓ A checkpoint over ${checkpoint.size} records is signed by the log's key.`);
  const root = hex(await rootOf(leaf, proof.seq, checkpoint.size, proof.proof.map(fromHex)));
  if (root !== checkpoint.root) throw new Error("the record is not in the log that the checkpoint speaks of");
  say(`✓ ${proof.proof.length} hashes lead from the record to the root ${root}.`);
  state.textContent = "Verified in this browser: the record is in the log.";
  place.dataset.verified = "yes";
}

button.hidden = false;
button.addEventListener("click", async () => {
  button.disabled = true;
  try {
    if (!globalThis.crypto?.subtle) throw new Error("this browser has cryptography only over https or on localhost");
    await verify();
  } catch (fault) {
    state.textContent = `Not verified: ${fault.message}.`;
    place.dataset.verified = "no";
  }
  button.disabled = false;
});

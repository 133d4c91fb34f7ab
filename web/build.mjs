// Bundle the page into the Python package, where the server reads it from.
import { copyFile, mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const target = here("../src/tidewire/console/static/");

await mkdir(target, { recursive: true });
await build({
  entryPoints: [here("src/app.ts")],
  outfile: `${target}app.js`,
  bundle: true,
  format: "iife",
  target: "es2022",
  minify: true,
  charset: "utf8",
  banner: { js: "/* Contains CometD JavaScript 9.0.0, copyright (c) 2008 the original author or authors, Apache License 2.0. */" },
  logLevel: "warning",
});
for (const name of ["index.html", "app.css", "icon.svg"]) {
  await copyFile(here(`src/${name}`), `${target}${name}`);
}

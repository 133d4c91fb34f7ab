// Bundle the console into the Python package, where the server reads it from.
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const target = here("../src/tidewire/console/static/");

await mkdir(target, { recursive: true });
await build({
  entryPoints: [here("src/app.tsx"), here("src/app.css")],
  outdir: target,
  bundle: true,
  format: "iife",
  target: "es2022",
  minify: true,
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  banner: { js: "/* Licences of what is bundled here: licences.txt beside this file. */" },
  legalComments: "none",
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) {
  await copyFile(here(`src/${name}`), `${target}${name}`);
}

const { dependencies } = JSON.parse(await readFile(here("package.json"), "utf8"));
const licences = Object.entries(dependencies).map(async ([name, version]) => {
  const text = await readFile(here(`node_modules/${name}/LICENSE`), "utf8");
  return `${name} ${version}\n\n${text.trim()}\n`;
});
await writeFile(`${target}licences.txt`, (await Promise.all(licences)).join("\n\n"));

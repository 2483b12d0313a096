// Compiles src/*.ts to dist/*.js with Node 24 alone: removes the types and changes the imports to .js.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';

mkdirSync('dist', { recursive: true });
for (const name of readdirSync('src')) {
  const source = readFileSync(`src/${name}`, 'utf8');
  const code = stripTypeScriptTypes(source, { mode: 'strip' }).replace(
    /(from '\.\/[^']+)\.ts'/g,
    "$1.js'",
  );
  writeFileSync(`dist/${name.replace(/\.ts$/, '.js')}`, code);
}

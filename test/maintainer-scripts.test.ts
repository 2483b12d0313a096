/**
 * Scripts of the Debian package. `npm run test:install` runs them on a machine; here each variable
 * must have a value.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const folder = join(import.meta.dirname, '..', 'deploy', 'debian');

it.each(['postinst', 'prerm', 'postrm'])('%s uses no variable that it does not set', (name) => {
  const text = readFileSync(join(folder, name), 'utf8')
    .replaceAll(/^\s*#.*$/gm, '')
    .replaceAll(/'[^'\n]*'/g, '');
  const used = [...text.matchAll(/\$\{?([a-z_]\w*)/gi)].map(([, variable = '']) => variable);
  const set = [...text.matchAll(/(?:^|[\s;(])([a-z_]\w*)=|\bfor ([a-z_]\w*) in\b/gim)].map(
    ([, assigned, looped]) => assigned ?? looped ?? '',
  );
  expect([...new Set(used)].filter((variable) => !set.includes(variable))).toEqual([]);
});

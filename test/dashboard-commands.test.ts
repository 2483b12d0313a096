/** The commands that pages of the dashboard show exist in the command line, with their options. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { commandProblem } from './known-command.ts';

const SRC = join(import.meta.dirname, '../packages/dashboard/src');
const SOURCES = ['pages', 'parts', 'app'].flatMap((folder) =>
  readdirSync(join(SRC, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file))
    .map((file) => [`${folder}/${file}`, readFileSync(join(SRC, folder, file), 'utf8')] as const),
);

describe('commands that pages show', () => {
  /**
   * The words of `words={[…]}` and `empty={[…]}`; a value of the page becomes `x`, and each choice
   * of texts one variant.
   */
  const shown = SOURCES.flatMap(([file, text]) =>
    [...text.matchAll(/(?:words|empty)=\{\[((?:[^[\]]|\[[^[\]]*\])*)\]\}/g)].map(
      ([, list = '']) => [file, list] as const,
    ),
  ).filter(([, list]) => list !== '');
  const variants = (list: string): string[][] => {
    const first = list.replaceAll(/[^,?]+\? ('[^']*') : ('[^']*')/g, ' $1');
    const second = list.replaceAll(/[^,?]+\? ('[^']*') : ('[^']*')/g, ' $2');
    return [first, second].map((one) =>
      one
        .replaceAll(/,\s*\.\.\.\(.*\)/gs, '')
        .split(',')
        .map((word) => word.trim())
        .filter((word) => word !== '')
        .map(
          (word) =>
            /^'([^']*)'$/.exec(word)?.[1] ??
            (word.startsWith('role') ? 'viewer' : word.startsWith('forge') ? 'gitea' : 'x'),
        ),
    );
  };
  it('finds them', () => expect(shown.length).toBeGreaterThan(30));
  it.each(shown)('%s: %s', (_file, list) => {
    for (const words of variants(list))
      expect([words.join(' '), commandProblem(words)]).toEqual([words.join(' '), null]);
  });
});

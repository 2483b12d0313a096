/** The sources of the pages show each error of a change once. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ApiError } from '@berth/wire/client';
import { describe, expect, it } from 'vitest';
import { besideFields, fieldErrors, problemText } from '../src/parts/problem.tsx';

const SRC = join(import.meta.dirname, '../src');
const SOURCES = ['pages', 'parts', 'app'].flatMap((folder) =>
  readdirSync(join(SRC, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file))
    .map((file) => [`${folder}/${file}`, readFileSync(join(SRC, folder, file), 'utf8')] as const),
);

const refused = (errors: [field: string, message: string][]): ApiError => {
  const problem = {
    type: 't',
    title: 'T',
    status: 422,
    detail: 'the detail',
    code: 'validation',
    request_id: 'r',
  };
  const body = {
    ...problem,
    errors: errors.map(([field, message]) => ({ field, rule: 'r', message })),
  };
  return new ApiError(422, 'validation', 'the detail', body);
};

describe('an error of the server stands at its field or once at the form', () => {
  it.each<[string, unknown, object | null]>([
    ['no error', null, null],
    ['all at fields', refused([['name', 'is taken']]), null],
    ['an item of a list', refused([['projects[1]', 'is unknown']]), null],
    ['none at a field', refused([['members', 'is wrong']]), { rest: null }],
    [
      'some at fields',
      refused([
        ['name', 'is taken'],
        ['env.A', 'is wrong'],
      ]),
      { rest: ['env.A is wrong'] },
    ],
    ['no fields', refused([]), { rest: null }],
    ['no answer', new Error('x'), { rest: null }],
  ])('%s', (_what, error, beside) =>
    expect(besideFields(error, ['name', 'projects'])).toEqual(beside),
  );

  it.each<[string, unknown, string]>([
    [
      'one field',
      refused([['git_url', 'the host is unknown']]),
      'Git address: the host is unknown',
    ],
    [
      'two fields',
      refused([
        ['env.A', 'is wrong'],
        ['branch', 'is wrong'],
      ]),
      'Env.A: is wrong (and 1 more)',
    ],
    ['no fields', refused([]), 'the detail'],
    [
      'a conflict with its own sentence',
      new ApiError(409, 'env_conflict', 'remove it first', {
        ...{ type: 't', title: 'T', status: 409, detail: 'd', code: 'env_conflict' },
        errors: [{ field: 'name', rule: 'env_conflict', message: 'is a name' }],
      }),
      'remove it first',
    ],
  ])('the sentence names fields like their controls: %s', (_what, error, text) =>
    expect(problemText(error)).toBe(text),
  );

  it('every change has its error on the page', () => {
    const missing = SOURCES.flatMap(([file, text]) =>
      [...text.matchAll(/const (\w+) = useApiMutation\(/g)]
        .map(([, name = '']) => name)
        .filter(
          (name) =>
            !new RegExp(`\\b${name}\\.error\\b|\\berrorOfLast\\([^)]*\\b${name}\\b`).test(text),
        )
        .map((name) => `${file}: ${name}`),
    );
    // createProject of the form of a new project, and 30 others.
    expect(
      SOURCES.flatMap(([, text]) => [...text.matchAll(/= useApiMutation\(/g)]).length,
    ).toBeGreaterThan(30);
    expect(missing).toEqual([]);
  });

  it('a form that shows errors at fields shows the others with FormProblem, which leaves those out', () => {
    for (const [file, text] of SOURCES) {
      if (file === 'parts/problem.tsx') continue;
      const read = [...text.matchAll(/fieldErrors\((\w+(?:\.error)?)\)/g)].map(
        ([, error = '']) => error,
      );
      for (const error of read) {
        const shownBy = (part: string): boolean =>
          new RegExp(`<${part}\\s+error=\\{${error.replace('.', '\\.')}\\}`).test(text);
        expect([shownBy('FormProblem'), shownBy('Problem')], `${file}: ${error}`).toEqual([
          true,
          false,
        ]);
      }
    }
  });

  it('each field of FormProblem has its error at a control of the form', () => {
    for (const [file, text] of SOURCES)
      for (const [, list = ''] of text.matchAll(/<FormProblem\s[^>]*?fields=\{\[([^\]]*)\]\}/g))
        for (const [, field = ''] of list.matchAll(/'(\w+)'/g))
          expect(
            text.includes(`errors['${field}']`) ||
              text.includes(`fields['${field}']`) ||
              new RegExp(`listError\\((?:\\w+\\.)?error, '${field}'\\)`).test(text),
            `${file}: ${field}`,
          ).toBe(true);
  });

  it('names a field of a list', () => {
    expect(fieldErrors(refused([['projects[1]', 'is unknown']]))).toMatchObject({
      projects: 'item 2: is unknown',
    });
  });
});

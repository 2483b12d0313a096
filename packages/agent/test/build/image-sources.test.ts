/** Which images of Berth's registry a Dockerfile may name. */
import { expect, it } from 'vitest';
import { checkImages, registryNames, sourcePolicy } from '../../src/build/image-sources.ts';

const REGISTRY = 'reg.example:5000';
const rules = {
  own: `${REGISTRY}/evil`,
  registries: [REGISTRY, '10.0.0.9:5000', 'localhost:5000', '127.0.0.1:5000', '[::1]:5000'],
  shared: [`${REGISTRY}/base`, `${REGISTRY}/team/*`],
};
const check = (text: string, args: Record<string, string> = {}): void =>
  checkImages(text, args, rules, 'reg.example');
const VAULT = `${REGISTRY}/vault:0123`;

it.each<[string, string, number, Record<string, string>?]>([
  ['FROM', `FROM ${VAULT}`, 1],
  ['a digest', `FROM ${REGISTRY}/vault@sha256:00`, 1],
  ['lower case, a platform, a name', `FROM node\nfrom --platform=linux/amd64 ${VAULT} AS a`, 2],
  ['a tab', `FROM\t${VAULT}`, 1],
  ['upper case of the registry', `FROM REG.Example:5000/vault`, 1],
  ['its address', 'FROM 10.0.0.9:5000/vault', 1],
  ['this machine', 'FROM localhost:5000/vault', 1],
  ['a trailing dot', 'FROM reg.example.:5000/vault', 1],
  ['COPY', `FROM node\nCOPY --chown=1:1 --from=${VAULT} / /x`, 2],
  ['ADD', `FROM node\nADD --from=${VAULT} / /x`, 2],
  ['RUN with a mount', `FROM node\nRUN --mount=type=bind,from=${VAULT},target=/x cat /x/v`, 2],
  [
    'a mount of a cache',
    `FROM node\nRUN --network=none --mount=type=cache,target=/x,FROM=${VAULT} cat /x/v`,
    2,
  ],
  ['ONBUILD', `FROM node\nONBUILD COPY --from=${VAULT} / /x`, 2],
  ['an ARG with a default', `ARG BASE=${VAULT}\nFROM $BASE`, 2],
  ['an ARG in parts', `ARG R=${REGISTRY} P=vault\nFROM \${R}/\${P}:1`, 2],
  ['an ARG in quotes', `ARG R="${REGISTRY}"\nFROM "$R"'/'vault`, 2],
  ['a build argument', 'ARG BASE=node\nFROM $BASE', 2, { BASE: VAULT }],
  ['a build argument without a default', 'ARG BASE\nFROM ${BASE}', 2, { BASE: VAULT }],
  ['a build argument of a platform', 'FROM ${TARGETOS}', 1, { TARGETOS: VAULT }],
  ['the default of a reference', `FROM \${BASE:-${VAULT}}`, 1],
  ['the alternative of a reference', `ARG A=1\nFROM \${A:+${VAULT}}`, 2],
  ['references inside each other', `ARG R=${REGISTRY}\nFROM \${A:-\${B:-$R/vault}}`, 2],
  ['an undeclared argument before the name', `FROM \${NONE}${VAULT}`, 1, { NONE: 'docker.io/' }],
  ['a value that cannot be told', `ARG B=x${VAULT}\nFROM \${B#x}`, 2],
  ['a beginning that fits the registry', `ARG P=x5000/vault\nFROM reg.example:\${P#x}`, 2],
  [
    'a value that an ARG takes from one that cannot be told',
    `ARG B=x${VAULT}\nARG C=\${B#x}\nFROM $C`,
    3,
  ],
  ['a continued line', `FROM \\\n  ${VAULT}`, 1],
  ['a continued word', `FR\\\nOM re\\\ng.example:5000/vault`, 1],
  ['a continued line with blanks after it', `FROM re\\ \t\n# no\n\ng.example:5000/vault`, 1],
  ['the other escape character', `# escape=\`\nFROM re\`\ng.example:5000/vault`, 2],
  ['a directive that is none', `# a comment\n# escape=\`\nFROM re\\\ng.example:5000/vault`, 3],
  ['an escaped character', `FROM re\\g.example:5000/vault`, 1],
  ['an escaped character in a flag', `FROM node\nCOPY --from=re\\g.example:5000/vault / /`, 2],
  ['quotes in a flag', `FROM node\nRUN --mount="type=bind,from=${VAULT}",target=/x true`, 2],
  ['a doubled escape that ends no line', `FROM node\nRUN x \\\\\nFROM ${VAULT}`, 3],
  ['the line after a here-document', `FROM node\nRUN <<'E\\'\nx\nE\\\nFROM ${VAULT}`, 5],
  [
    'a continued word after a here-document',
    `FROM node\nRUN <<'E\\'\nx\nE\\\nFR\\\nOM ${VAULT}`,
    5,
  ],
  ['Windows line ends', `FROM re\\\r\ng.example:5000/vault\r\n`, 1],
  ['a byte order mark', `\u{FEFF}FROM ${VAULT}`, 1],
  ['another project whose name begins alike', `FROM ${REGISTRY}/evil-twin:1`, 1],
  ['a folder below the own repository', `FROM ${REGISTRY}/evil/x:1`, 1],
  ['a shared name that begins alike', `FROM ${REGISTRY}/base2`, 1],
  [
    'an ARG that another one seems to replace inside quotes',
    `ARG Y=${VAULT}\nARG X="a Y=node b"\nFROM $Y`,
    3,
  ],
  ['an ARG that no blank replaces', `ARG Y=${VAULT}\nARG X=a\u{FEFF}Y=node\nFROM $Y`, 3],
  [
    'an ARG that a stage replaces for itself',
    `ARG Y=${VAULT}\nARG Z=1 \\\r\r\nFROM scratch AS a\nARG Y=node\nFROM $Y`,
    5,
  ],
  ['an ARG that has no value in some versions', `ARG Y=node\nARG Y\nFROM \${Y:-${VAULT}}`, 3],
  ['an ARG whose name is a reference', `ARG N=B\nARG \${N}ASE=${VAULT}\nFROM $BASE`, 3],
  ['a variant that this machine does not have', `FROM \${TARGETVARIANT}${VAULT}`, 1],
  ['the text for a variant', `FROM \${TARGETVARIANT:+docker.io/}${VAULT}`, 1],
  ['the stage that is built', 'FROM ${TARGETSTAGE}:5000/vault', 1],
  [
    'a line that only looks like a comment',
    `FROM node\nRUN --mount=type=bind,target=/a\\\n\u{FEFF}#b,from=${VAULT} true`,
    2,
  ],
  [
    'a line that was no comment in older versions',
    `FROM node\nRUN --mount=type=bind,target=/a\\\n  #b,from=${VAULT} true`,
    2,
  ],
  [
    'a line that only looks empty',
    `ARG Y=${VAULT}\nARG Z=1\\\n\u{FEFF}\nFROM scratch AS a\nARG Y=node\nFROM $Y`,
    6,
  ],
  [
    'a letter whose lower case is another one',
    `FROM node\nONBU\u0130LD COPY --from=${VAULT} / /x`,
    2,
  ],
  ['another address of this machine', 'FROM 127.0.0.2:5000/vault', 1],
  ['a number as address of this machine', 'FROM 2130706433:5000/vault', 1],
  ['an IPv4 address inside an IPv6 one', 'FROM [::ffff:10.0.0.9]:5000/vault', 1],
  ['a long form of an address', 'FROM [0:0:0:0:0:0:0:1]:5000/vault', 1],
])('an image of another project is refused: %s', (_what, text, line, args) => {
  expect(() => check(text, args)).toThrow(
    expect.objectContaining({
      code: 'build_image_refused',
      message: expect.stringContaining(`line ${line}: `),
    }) as Error,
  );
});

it.each<[string, string, Record<string, string>?]>([
  ['the own repository', `FROM ${REGISTRY}/evil:1\nCOPY --from=${REGISTRY}/evil@sha256:00 / /`],
  ['a shared repository', `FROM ${REGISTRY}/base:20\nFROM ${REGISTRY}/team/a/b`],
  [
    'Docker Hub',
    'ARG V=20\nFROM --platform=$BUILDPLATFORM node:${V}-alpine AS build\nFROM nginx\nCOPY ' +
      '--from=build /a /b',
  ],
  ['a version with a removed end', 'ARG V=1.2.3\nFROM golang:${V%.*}'],
  [
    'another registry',
    'FROM ghcr.io/acme/vault\nFROM reg.example:5001/vault\nFROM reg.example/vault',
  ],
  [
    'a stage with the name of a registry',
    'FROM node AS reg.example\nFROM reg.example\nCOPY --from=0 /a /b',
  ],
  ['a stage of a platform', 'FROM node AS for-amd64\nFROM for-${TARGETARCH}'],
  [
    'a comment and the text of a program',
    `# FROM ${VAULT}\nFROM node\nRUN echo "FROM ${VAULT}"\nRUN <<E\nfrom a import b\nE`,
  ],
  ['a build argument in the place of a default', `ARG BASE=${VAULT}\nFROM $BASE`, { BASE: 'node' }],
  [
    'a platform in the name',
    'FROM base-${TARGETARCH}${TARGETVARIANT}\nFROM --platform=${TARGETPLATFORM} node',
  ],
  [
    'many values',
    `${Array.from({ length: 40 }, (_, n) => `ARG V${n}=${n}`).join('\n')}\nFROM ` +
      'node:$V1.$V2.$V3-$V4$V5$V6$V7$V8$V9',
  ],
  [
    'a script with a value',
    'FROM node\nRUN sync --from=$SOURCE && psql -c "select 1 \\\n  FROM ${TABLE}"',
  ],
])('is built: %s', (_what, text, args) => {
  expect(() => check(text, args)).not.toThrow();
});

it('a registry on Docker Hub or with a path is recognized in each spelling, and nothing beside it', () => {
  const hub = { own: 'docker.io/acme/evil', registries: ['docker.io/acme'], shared: [] };
  for (const name of ['acme/vault', 'docker.io/acme/vault', 'index.docker.io/acme/vault:1'])
    expect(() => checkImages(`FROM ${name}`, {}, hub, null), name).toThrow('line 1');
  for (const name of ['acme/evil:2', 'node', 'library/node', 'acmes/vault', 'ghcr.io/acme/vault'])
    expect(() => checkImages(`FROM ${name}`, {}, hub, null), name).not.toThrow();
});

it('refuses a Dockerfile that is too long to check', () => {
  expect(() => check(`FROM node\n${'RUN x\n'.repeat(20_000)}`)).toThrow('more than 20000 lines');
  expect(() =>
    check(`FROM node\nRUN a \\\n${`RUN ${'b'.repeat(900)} \\\n`.repeat(1_000)}`),
  ).toThrow('too long');
  const args = Array.from({ length: 8 }, (_, n) => `ARG V${n}=${n}`).join('\n');
  const word = '$V0$V1$V2$V3$V4$V5$V6$V7'.repeat(10);
  expect(() => check(`${args}\n${`FROM ${word}\n`.repeat(200)}`)).toThrow('too many to check');
});

it('a registry has names with its default port, by its addresses, and on its own machine', () => {
  const resolved = (host: string): string[] =>
    host === 'reg.example' ? ['10.0.0.9'] : host === 'here.example' ? ['10.0.0.1'] : [];
  expect(registryNames(['reg.example:5000', 'registry:5000'], resolved, ['10.0.0.1'])).toEqual([
    'reg.example:5000',
    '10.0.0.9:5000',
    'registry:5000',
  ]);
  expect(registryNames(['reg.example/path'], resolved, [])).toEqual(
    ['reg.example', '10.0.0.9'].flatMap((host) =>
      ['', ':443', ':80'].map((port) => `${host}${port}/path`),
    ),
  );
  for (const name of [
    'localhost:5000',
    '127.0.0.1:5000',
    '[::1]:5000',
    '10.0.0.1:5000',
    '[fd00::1]:5000',
  ])
    expect(registryNames(['here.example:5000'], resolved, ['10.0.0.1', 'fd00::1'])).toContain(name);
});

it('the source policy of BuildKit denies the registry and then allows what the project may use', () => {
  const { rules: found } = JSON.parse(sourcePolicy(rules, [`${REGISTRY}/front:3`])) as {
    rules: { action: string; selector: { identifier: string } }[];
  };
  /** As BuildKit decides: the last rule that matches. */
  const decide = (image: string): string => {
    const matches = found.filter(({ selector: { identifier } }) => {
      const pattern = identifier
        .split('*')
        .map((part) => part.replace(/[.\\+?^${}()|[\]]/g, '\\$&'));
      return new RegExp(`^${pattern.join('.*')}$`).test(`docker-image://${image}`);
    });
    return matches.at(-1)?.action ?? 'ALLOW';
  };
  expect(
    ['evil:1', 'evil@sha256:0', 'evil:1@sha256:0', 'base:2', 'team/x:1', 'front:3'].map((name) =>
      decide(`${REGISTRY}/${name}`),
    ),
  ).toEqual(Array.from({ length: 6 }, () => 'ALLOW'));
  expect(
    ['vault:1', 'vault@sha256:0', 'evil-twin:1', 'evil/x:1', 'front:4'].map((name) =>
      decide(`${REGISTRY}/${name}`),
    ),
  ).toEqual(Array.from({ length: 5 }, () => 'DENY'));
  expect(decide('10.0.0.9:5000/vault:1')).toBe('DENY');
  expect(decide('docker.io/library/node:20')).toBe('ALLOW');
});

import { describe, expect, test } from 'vitest';
import { ConfigurationError, goRegExp, parseConfiguration } from '../src/configuration.ts';
import { compile } from '../src/router.ts';

const services = {
  one: { loadBalancer: { servers: [{ url: 'http://10.0.0.1:1' }] } },
  two: { loadBalancer: { servers: [{ url: 'http://10.0.0.2:2' }] } },
};
const table = (http: object, file?: object) =>
  compile({
    http: parseConfiguration({ http }),
    ...(file === undefined ? {} : { file: parseConfiguration({ http: file }) }),
  });
const find = (t: ReturnType<typeof table>, host: string, path = '/'): string | null =>
  t.find({ host, path, headers: {} })?.name ?? null;

describe('the table', () => {
  test('has routers of websecure and routers without an entry point, but not routers of web', () => {
    const t = table({
      routers: {
        secure: { rule: 'Host(`a`)', entryPoints: ['websecure'], service: 'one' },
        plain: {
          rule: 'Host(`b`)',
          entryPoints: ['web'],
          service: 'one',
          middlewares: ['redirect-to-https@file'],
        },
        all: { rule: 'Host(`c`)', service: 'one' },
      },
      services,
    });
    expect([find(t, 'a'), find(t, 'b'), find(t, 'c')]).toEqual(['secure@http', null, 'all@http']);
    expect(t.problems).toEqual([]);
  });

  test('a child has the priority and the entry points of its parent, and the middlewares of both', () => {
    const routers = {
      app: { rule: 'Host(`a`)', service: 'one' },
      parent: {
        rule: 'HeaderRegexp(`X-Key`, `.`) && Host(`a`)',
        entryPoints: ['websecure'],
        middlewares: ['outer'],
      },
      child: {
        rule: 'Host(`a`)',
        parentRefs: ['parent'],
        priority: 1,
        service: 'two',
        middlewares: ['inner'],
      },
      elsewhere: { rule: 'Host(`b`)', parentRefs: ['plain'], service: 'two' },
      plain: { rule: 'Host(`b`)', entryPoints: ['web'] },
      orphan: { rule: 'Host(`c`)', parentRefs: ['nobody'], service: 'two' },
    };
    const headers = (name: string) => ({ headers: { customRequestHeaders: { [name]: '' } } });
    const t = table({
      routers,
      services,
      middlewares: { outer: headers('X-Outer'), inner: headers('X-Inner') },
    });
    const found = t.find({ host: 'a', path: '/', headers: { 'x-key': '1' } });
    expect(found).toMatchObject({ name: 'child@http', service: { name: 'two' } });
    expect(found?.middlewares.map((m) => m.kind === 'headers' && Object.keys(m.request))).toEqual([
      ['X-Outer'],
      ['X-Inner'],
    ]);
    expect([find(t, 'a'), find(t, 'b'), find(t, 'c')]).toEqual(['app@http', null, null]);
    expect(t.problems).toEqual(['router orphan@http: router nobody does not exist']);
  });

  test('prefers the longer rule; an explicit priority overrides the length', () => {
    const t = table({
      routers: {
        short: { rule: 'Host(`a`)', service: 'one' },
        long: { rule: 'Host(`a`) && PathPrefix(`/x`)', service: 'two' },
        first: { rule: 'Path(`/x/first`)', service: 'one', priority: 1000 },
      },
      services,
    });
    expect([find(t, 'a'), find(t, 'a', '/x'), find(t, 'a', '/x/first')]).toEqual([
      'short@http',
      'long@http',
      'first@http',
    ]);
  });

  test('resolves references to the same provider, to another provider, and to noop@internal', () => {
    const t = table(
      {
        routers: {
          app: { rule: 'Host(`a`)', service: 'one', middlewares: ['strip@file'] },
          marker: { rule: 'Path(`/hash`)', service: 'noop@internal' },
        },
        services,
      },
      {
        routers: { board: { rule: 'Host(`b`)', service: 'two@http', middlewares: ['strip'] } },
        middlewares: { strip: { headers: { customRequestHeaders: { X: '' } } } },
      },
    );
    expect([find(t, 'a'), find(t, 'b'), find(t, 'x', '/hash')]).toEqual([
      'app@http',
      'board@file',
      'marker@http',
    ]);
    expect([...t.origins]).toEqual(['http://10.0.0.2:2', 'http://10.0.0.1:1'].sort());
  });

  test.each([
    [
      'an unsupported rule',
      { rule: 'ClientIP(`::1`)', service: 'one' },
      'unknown matcher ClientIP',
    ],
    ['no rule', { service: 'one' }, 'rule is not a string'],
    ['a missing service', { rule: 'Host(`a`)', service: 'three' }, 'service three does not exist'],
    [
      'a service of an unknown provider',
      { rule: 'Host(`a`)', service: 'one@docker' },
      'service one@docker does not exist',
    ],
    [
      'another internal service',
      { rule: 'Host(`a`)', service: 'api@internal' },
      'service api@internal does not exist',
    ],
    [
      'a middleware that does not exist',
      { rule: 'Host(`a`)', service: 'one', middlewares: ['login@file'] },
      'middleware login@file does not exist',
    ],
    [
      'a middleware of an unknown kind',
      { rule: 'Host(`a`)', service: 'one', middlewares: ['limit'] },
      'middleware limit has the type rateLimit, which this proxy does not support',
    ],
    [
      'a middleware with an unknown option',
      { rule: 'Host(`a`)', service: 'one', middlewares: ['strict'] },
      'does not support: frameDeny',
    ],
    [
      'a middleware with a bad expression',
      { rule: 'Host(`a`)', service: 'one', middlewares: ['regex'] },
      'Invalid regular expression',
    ],
    [
      'a middleware with a bad address',
      { rule: 'Host(`a`)', service: 'one', middlewares: ['nowhere'] },
      'address is not an http or https URL',
    ],
    [
      'a service with a bad address',
      { rule: 'Host(`a`)', service: 'bad' },
      'the url of a server is not an http or https URL',
    ],
    [
      'a service of an unknown kind',
      { rule: 'Host(`a`)', service: 'weighted' },
      'does not support: weighted',
    ],
  ])('skips and reports a router with %s; other routers stay', (_, broken, problem) => {
    const t = table({
      routers: { broken, sound: { rule: 'Host(`sound`)', service: 'one' } },
      services: {
        ...services,
        bad: { loadBalancer: { servers: [{ url: 'ftp://x' }] } },
        weighted: { weighted: {} },
      },
      middlewares: {
        limit: { rateLimit: { average: 1 } },
        strict: { headers: { frameDeny: true } },
        regex: { forwardAuth: { address: 'http://a', authResponseHeadersRegex: '(' } },
        nowhere: { forwardAuth: { address: '/verify' } },
      },
    });
    expect(t.problems).toHaveLength(1);
    expect(t.problems[0]).toContain(problem);
    expect([find(t, 'a'), find(t, 'sound')]).toEqual([null, 'sound@http']);
  });
});

describe('an invalid configuration', () => {
  test.each([
    [null],
    [[]],
    ['text'],
    [{}],
    [{ http: null }],
    [{ http: [] }],
    [{ http: { routers: [] } }],
    [{ http: { services: 'x' } }],
  ])('%j', (document) => {
    expect(() => parseConfiguration(document)).toThrow(ConfigurationError);
  });
});

test('goRegExp converts flags of Go expressions', () => {
  const regex = goRegExp(
    '(?i)^(x[-_]forwarded[-_]user([-_](name|avatar|provider|assertion))?|cookie|authorization)$',
  );
  expect(
    ['X-Forwarded-User', 'x_forwarded_user_name', 'Cookie', 'Authorization'].every((name) =>
      regex.test(name),
    ),
  ).toBe(true);
  expect(['X-Forwarded-User-Id', 'Set-Cookie'].some((name) => regex.test(name))).toBe(false);
  expect(goRegExp('^x$').test('X')).toBe(false);
});

import { SettingsError } from '@berth/kit/config';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../src/config.ts';
import { ENV } from './core-support.ts';

const problemsOf = (env: Record<string, string>): readonly string[] => {
  try {
    readConfig(env);
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.problems;
    throw error;
  }
};

describe('settings', () => {
  it('have the documented defaults if only the required ones are set', () => {
    const { LISTEN: _, ...env } = ENV;
    expect(readConfig(env)).toMatchObject({
      LISTEN: { host: '127.0.0.1', port: 4180 },
      PUBLIC_URL: 'https://berth.localhost',
      SESSION_TTL: 7 * 86_400_000,
      GATEWAY_WORKERS: 1,
      OIDC_NAME: 'oidc',
      GITHUB_URL: 'https://github.com',
      ADMIN_EMAILS: ['boss@example.com'],
    });
    expect(readConfig(env).ALLOWED_EMAILS).toBeUndefined();
  });

  it('an error names all missing settings', () => {
    const named = problemsOf({}).map((p) => p.split(':')[0]);
    expect(named).toEqual(['CONTROL_PLANE_URL', 'GATEWAY_SECRET', 'BASE_DOMAIN', 'SESSION_SECRET']);
  });

  it('secrets are lists with the current one first', () => {
    const [a, b] = ['a'.repeat(32), 'b'.repeat(32)];
    expect(
      readConfig({ ...ENV, SESSION_SECRET: `${a}, ${b}`, GATEWAY_SECRET: 'x,y' }),
    ).toMatchObject({
      SESSION_SECRET: [a, b],
      GATEWAY_SECRET: ['x', 'y'],
    });
  });

  it.each([
    ['OIDC_ISSUER', 'http://idp.example', 'https'],
    ['OIDC_ISSUER', 'http://127.0.0.1.evil.example', 'https'],
    ['OIDC_ISSUER', 'ftp://idp.example', 'https'],
    ['OIDC_ISSUER', 'https://idp.example?x=1', 'query'],
    ['OIDC_NAME', 'My Company', 'a-z'],
    ['OIDC_NAME', 'github', 'another provider'],
    ['PUBLIC_URL', 'https://berth.localhost/path', 'only a scheme'],
    ['PUBLIC_URL', 'berth.localhost', 'URL'],
    ['ALLOWED_EMAILS', 'everybody', 'everybody'],
    ['ALLOWED_EMAILS', ',', 'empty list'],
    ['ADMIN_EMAILS', '@example.com', '@example.com'],
    ['SESSION_TTL', '10', 'duration'],
    ['SESSION_TTL', '1s', 'at least'],
    ['SESSION_TTL', '91d', 'at most 90d'],
    ['GATEWAY_WORKERS', '0', 'whole number'],
    ['STATE_DIR', 'state', 'absolute'],
    ['GATEWAY_SECRET', 'a,b,c,d,e,f,g,h,i', 'has 9 secrets; the maximum is 8'],
    ['GATEWAY_SECRET', ',', 'at least one secret'],
  ])('%s=%s is refused with a reason', (name, value, why) => {
    const oidc = name === 'OIDC_ISSUER' ? { OIDC_CLIENT_ID: 'x', OIDC_CLIENT_SECRET: 'y' } : {};
    const problems = problemsOf({ ...ENV, ...oidc, [name]: value });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(new RegExp(`^${name}: .*${why}`));
  });

  it.each([
    'http://127.0.0.1:3000',
    'http://localhost:3000/realm',
    'http://idp.localhost',
    'http://[::1]:1',
    'https://idp.example/realms/x',
  ])('OIDC_ISSUER=%s is accepted', (OIDC_ISSUER) => {
    expect(
      readConfig({ ...ENV, OIDC_ISSUER, OIDC_CLIENT_ID: 'x', OIDC_CLIENT_SECRET: 'y' }).OIDC_ISSUER,
    ).toBe(OIDC_ISSUER);
  });

  it('a short secret is refused, and the error does not repeat it', () => {
    const [problem = ''] = problemsOf({ ...ENV, SESSION_SECRET: `${'a'.repeat(32)},hunter2` });
    expect(problem).toContain('SESSION_SECRET');
    expect(problem).not.toContain('hunter2');
  });

  it('a partly configured provider is refused', () => {
    expect(
      problemsOf({ ...ENV, GITHUB_CLIENT_ID: 'x', GOOGLE_CLIENT_SECRET: 'y' }).map(
        (p) => p.split(':')[0],
      ),
    ).toEqual(['GITHUB_CLIENT_SECRET', 'GOOGLE_CLIENT_ID']);
  });
});

/** Sign-in by password or by the gateway. */
import { ApiError } from '@berth/wire/client';
import { useEffect, useState } from 'react';
import { call, exchange, gatewayPerson } from '../api/client.ts';
import { reportSignIn } from '../api/connection.ts';
import { queries, useApiQuery } from '../api/queries.ts';
import { OutAnchor } from '../ui/text.tsx';
import { Problem } from '../parts/problem.tsx';
import { Button, LinkButton } from '../ui/controls.tsx';
import { beginLogin, endLogin, isOtherAccount, setRefused, usedAccount } from './begun.ts';
import { Centered, Column, Panel } from '../ui/layout.tsx';
import { SkeletonLines, Waiting } from '../ui/feedback.tsx';
import { Dialog } from '../ui/overlay.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Text, Title } from '../ui/text.tsx';

export const SignIn = () => (
  <Centered>
    <main>
      <Panel>
        <Column>
          <Title>Sign in to Berth</Title>
          <SignInForm />
        </Column>
      </Panel>
    </main>
  </Centered>
);

/** Over the page, when a session ends while somebody works. */
export const SignInDialog = ({ email }: { email: string }) => (
  <Dialog open onClose={() => undefined} closable={false} title="Your session ended">
    <Column>
      <Text>
        Sign in again. The page behind this window stays as it is, with everything that you typed.
      </Text>
      <SignInForm over={email} />
    </Column>
  </Dialog>
);

/** The answer sets a cookie that no script can read. */
const COOKIE = { 'x-session': 'cookie' };
/**
 * The gateway comes back to this address, with a session of its own; `?signed-in` says so, with the
 * value of `beginLogin`.
 */
const gatewayLogin = (value: string): string => {
  const back = new URL(location.href);
  back.searchParams.set('signed-in', value);
  return `/_oauth/login?redirect=${encodeURIComponent(back.href)}`;
};

/** Ends the session of an account that the person did not choose. */
async function endRefused(): Promise<void> {
  try {
    await call('logout', {});
  } catch (problem) {
    // It has ended already.
    if (!(problem instanceof ApiError && problem.status === 401)) throw problem;
  }
  setRefused(false);
}

/**
 * In the place of a page, while the cookie has the session of an account that the person did not
 * choose.
 */
export function RefusedSession() {
  const [error, setError] = useState<unknown>(null);
  const end = (): void => {
    setError(null);
    endRefused().then(() => queries.resetQueries(), setError);
  };
  // Once, at the beginning.
  useEffect(end, []);
  return (
    <Centered>
      {error === null ? (
        <Waiting what="the sign-in" />
      ) : (
        <Problem
          error={error}
          what="Signing out of an account that you did not choose"
          again={end}
        />
      )}
    </Centered>
  );
}

/**
 * `over`: the form stands over a page of this person, which must stay. The gateway's login then
 * opens in a tab of its own.
 */
function SignInForm({ over }: { over?: string }) {
  const methods = useApiQuery('authMethods', {});
  const hasGateway = methods.data?.methods.includes('gateway') === true;
  const [name, setName] = useState(over ?? '');
  const [password, setPassword] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [value] = useState(beginLogin);
  /** The person whom the gateway knows, and who must say that it is they. */
  const [asked, setAsked] = useState<string | null>(null);

  useEffect(() => {
    const address = new URL(location.href);
    const returned = address.searchParams.get('signed-in');
    if (returned === null) return;
    address.searchParams.delete('signed-in');
    history.replaceState(history.state, '', address);
    void arrive(endLogin(returned));
    // Once, when the gateway came back.
  }, []);

  /**
   * Only a login that this browser began, of the account that it used last, signs in without a
   * question.
   */
  async function arrive(isBegun: boolean): Promise<void> {
    const email = await gatewayPerson();
    if (email === null) {
      if (isBegun)
        setError(
          new Error('The gateway does not say whose session this browser has. Sign in again.'),
        );
    } else if (!isBegun || isOtherAccount(email)) setAsked(email);
    else await byGateway(email);
  }
  /**
   * The session of the gateway can change meanwhile. The server then signs in nobody; one of an
   * earlier version does not check.
   */
  const byGateway = (email: string): Promise<void> =>
    run(async () => {
      const { answer } = await exchange('exchange', {
        headers: { ...COOKIE, 'x-session-account': encodeURIComponent(email) },
      });
      if (answer.user.email !== email) {
        setRefused(true);
        await endRefused();
        throw new Error(
          `The gateway signed in ${answer.user.email} instead of ${email}. Delete the cookies of ` +
            'this site, then try again.',
        );
      }
      usedAccount(answer.user.email);
    });

  async function run(signIn: () => Promise<unknown>): Promise<void> {
    setBusy(true);
    setError(null);
    try {
      await signIn();
      // The cookie is of this person now.
      setRefused(false);
      reportSignIn();
      await queries.invalidateQueries();
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  }
  // Without an answer the way by password stays open.
  if (methods.isPending)
    return (
      <div role="status">
        <span className="visually-hidden">Loading the ways to sign in</span>
        <SkeletonLines />
      </div>
    );
  const form = (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy)
          void run(async () =>
            usedAccount(
              (await exchange('login', { body: { email: name, password }, headers: COOKIE })).answer
                .user.email,
            ),
          );
      }}
    >
      <Column>
        <TextField
          label="E-mail address"
          type="email"
          name="email"
          autoComplete="username"
          value={name}
          onChange={setName}
          required
        />
        <TextField
          label="Password"
          secret
          name="password"
          autoComplete="current-password"
          value={password}
          onChange={setPassword}
          required
        />
        <Button type="submit" look={hasGateway ? 'normal' : 'main'} busy={busy}>
          Sign in
        </Button>
      </Column>
    </form>
  );
  return (
    <Column>
      <Problem error={error} what="Sign-in" />
      {asked !== null && (
        <Button look="main" busy={busy} onClick={() => void byGateway(asked)}>
          Continue as {asked}
        </Button>
      )}
      {hasGateway && (
        <>
          <LinkButton href={gatewayLogin(value)} newTab={over !== undefined}>
            Sign in with the identity provider of your team
          </LinkButton>
          {over !== undefined && (
            <Text size="xs" tone="quiet">
              The login opens in a new tab. Come back to this one afterwards.
            </Text>
          )}
          <Text size="sm" tone="quiet">
            Or with a password of Berth
          </Text>
        </>
      )}
      {form}
      {hasGateway && over === undefined && (
        <Text size="xs" tone="quiet">
          To use a project, open its address.{' '}
          <OutAnchor href="/_oauth/devices">Your devices</OutAnchor>
        </Text>
      )}
    </Column>
  );
}

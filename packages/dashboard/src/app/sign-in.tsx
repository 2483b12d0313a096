/** Signs in by password or by the gateway. */
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

/** The sign-in dialog over the page, for a session that ends while somebody works. */
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

/** Asks the server to set a session cookie that scripts cannot read. */
const COOKIE = { 'x-session': 'cookie' };
/**
 * Returns the login address of the gateway. After the login, the gateway redirects to this page
 * with a new session; `?signed-in` contains the value of `beginLogin`.
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
    // The session has already ended.
    if (!(problem instanceof ApiError && problem.status === 401)) throw problem;
  }
  setRefused(false);
}

/**
 * Replaces the page while the cookie has a session of an account that the person did not choose.
 */
export function RefusedSession() {
  const [error, setError] = useState<unknown>(null);
  const end = (): void => {
    setError(null);
    endRefused().then(() => queries.resetQueries(), setError);
  };
  // Run once, when the component mounts.
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
 * Signs in by password or as the person of the gateway. `busy` is true while `run` signs in;
 * `error` is the error of the last attempt.
 */
function useSignIn() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  async function run(signIn: () => Promise<unknown>): Promise<void> {
    setBusy(true);
    setError(null);
    try {
      await signIn();
      // The cookie now belongs to this person.
      setRefused(false);
      reportSignIn();
      await queries.invalidateQueries();
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  }
  return { busy, error, setError, run };
}

async function signInByPassword(email: string, password: string): Promise<void> {
  const { answer } = await exchange('login', { body: { email, password }, headers: COOKIE });
  usedAccount(answer.user.email);
}

/**
 * Signs in the gateway's person. If the gateway session belongs to another person by now, the
 * server refuses. An older server does not check it, so the answer is checked too.
 */
async function signInByGateway(email: string): Promise<void> {
  const { answer } = await exchange('exchange', {
    headers: { ...COOKIE, 'x-session-account': encodeURIComponent(email) },
  });
  if (answer.user.email !== email) {
    setRefused(true);
    await endRefused();
    throw new Error(
      `The gateway signed in ${answer.user.email} instead of ${email}. ` +
        'Delete the cookies of this site, then try again.',
    );
  }
  usedAccount(answer.user.email);
}

const UNKNOWN_PERSON = 'The gateway does not say whose session this browser has. Sign in again.';

/**
 * Continues a login after the redirect from the gateway. Signs in without a question only if this
 * browser began the login and last used the same account. Otherwise returns the person whom the
 * page must ask.
 */
function useReturnFromGateway({ run, setError }: ReturnType<typeof useSignIn>): string | null {
  const [askedPerson, setAskedPerson] = useState<string | null>(null);
  async function continueLogin(isBegun: boolean): Promise<void> {
    const email = await gatewayPerson();
    if (email === null) {
      if (isBegun) setError(new Error(UNKNOWN_PERSON));
    } else if (!isBegun || isOtherAccount(email)) setAskedPerson(email);
    else await run(() => signInByGateway(email));
  }
  useEffect(() => {
    const address = new URL(location.href);
    const returned = address.searchParams.get('signed-in');
    if (returned === null) return;
    address.searchParams.delete('signed-in');
    history.replaceState(history.state, '', address);
    void continueLogin(endLogin(returned));
    // Run once, after the redirect from the gateway.
  }, []);
  return askedPerson;
}

/**
 * `over`: the form covers the page of this person, and that page must stay. So the gateway login
 * opens in a new tab.
 */
function SignInForm({ over }: { over?: string }) {
  const methods = useApiQuery('authMethods', {});
  const hasGateway = methods.data?.methods.includes('gateway') === true;
  const signIn = useSignIn();
  const { busy, error, run } = signIn;
  const askedPerson = useReturnFromGateway(signIn);
  // If the sign-in methods cannot be read, the password form is still available.
  if (methods.isPending)
    return (
      <div role="status">
        <span className="visually-hidden">Loading the ways to sign in</span>
        <SkeletonLines />
      </div>
    );
  return (
    <Column>
      <Problem error={error} what="Sign-in" />
      {askedPerson !== null && (
        <Button
          look="main"
          busy={busy}
          onClick={() => void run(() => signInByGateway(askedPerson))}
        >
          Continue as {askedPerson}
        </Button>
      )}
      {hasGateway && <GatewayLogin inNewTab={over !== undefined} />}
      <PasswordForm
        email={over ?? ''}
        look={hasGateway ? 'normal' : 'main'}
        busy={busy}
        onSubmit={(email, password) => void run(() => signInByPassword(email, password))}
      />
      {hasGateway && over === undefined && (
        <Text size="xs" tone="quiet">
          To use a project, open its address.{' '}
          <OutAnchor href="/_oauth/devices">Your devices</OutAnchor>
        </Text>
      )}
    </Column>
  );
}

function GatewayLogin({ inNewTab }: { inNewTab: boolean }) {
  const [value] = useState(beginLogin);
  return (
    <>
      <LinkButton href={gatewayLogin(value)} newTab={inNewTab}>
        Sign in with the identity provider of your team
      </LinkButton>
      {inNewTab && (
        <Text size="xs" tone="quiet">
          The login opens in a new tab. Come back to this one afterwards.
        </Text>
      )}
      <Text size="sm" tone="quiet">
        Or with a password of Berth
      </Text>
    </>
  );
}

type PasswordFormProps = {
  /** The initial text of the e-mail field. */
  email: string;
  look: 'main' | 'normal';
  busy: boolean;
  onSubmit: (email: string, password: string) => void;
};
function PasswordForm({ email: first, look, busy, onSubmit }: PasswordFormProps) {
  const [email, setEmail] = useState(first);
  const [password, setPassword] = useState('');
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) onSubmit(email, password);
      }}
    >
      <Column>
        <TextField
          label="E-mail address"
          type="email"
          name="email"
          autoComplete="username"
          value={email}
          onChange={setEmail}
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
        <Button type="submit" look={look} busy={busy}>
          Sign in
        </Button>
      </Column>
    </form>
  );
}

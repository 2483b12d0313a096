/** Sign-in by password or by the gateway. */
import { useEffect, useState } from 'react';
import { exchange } from '../api/client.ts';
import { reportSignIn } from '../api/connection.ts';
import { queries, useAsk } from '../api/queries.ts';
import { OutAnchor } from '../ui/text.tsx';
import { Problem } from '../parts/problem.tsx';
import { Button, LinkButton } from '../ui/controls.tsx';
import { Centered, Column, Panel } from '../ui/layout.tsx';
import { Ghost } from '../ui/feedback.tsx';
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
      <Text>Sign in again. The page behind this window stays as it is, with everything that you typed.</Text>
      <SignInForm over={email} />
    </Column>
  </Dialog>
);

/** The answer sets a cookie that no script can read. */
const COOKIE = { 'x-session': 'cookie' };
/** The gateway comes back to this address, with a session of its own; `?signed-in` says so. */
const gatewayLogin = (): string => {
  const back = new URL(location.href);
  back.searchParams.set('signed-in', 'gateway');
  return `/_oauth/login?redirect=${encodeURIComponent(back.href)}`;
};

/** `over`: the form stands over a page of this person, which must stay. The gateway's login then opens in a tab of its own. */
function SignInForm({ over }: { over?: string }) {
  const methods = useAsk('authMethods', {});
  const hasGateway = methods.data?.methods.includes('gateway') === true;
  const [name, setName] = useState(over ?? '');
  const [password, setPassword] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    if (new URL(location.href).searchParams.get('signed-in') !== 'gateway') return;
    const address = new URL(location.href);
    address.searchParams.delete('signed-in');
    history.replaceState(history.state, '', address);
    void run(() => exchange('exchange', { headers: COOKIE }));
    // Once, when the gateway came back.
  }, []);

  async function run(signIn: () => Promise<unknown>): Promise<void> {
    setBusy(true);
    setError(null);
    try {
      await signIn();
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
        <Ghost />
      </div>
    );
  const form = (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) void run(() => exchange('login', { body: { email: name, password }, headers: COOKIE }));
      }}
    >
      <Column>
        <TextField label="E-mail address" type="email" name="email" autoComplete="username" value={name} onChange={setName} required />
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
      {error !== null && <Problem error={error} what="Sign-in" />}
      {hasGateway && (
        <>
          <LinkButton href={gatewayLogin()} newTab={over !== undefined}>
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
          To use a project, open its address. <OutAnchor href="/_oauth/devices">Your devices</OutAnchor>
        </Text>
      )}
    </Column>
  );
}

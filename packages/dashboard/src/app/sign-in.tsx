/** Sign-in by password or by the gateway. */
import { useState } from 'react';
import { exchange } from '../api/client.ts';
import { reportSignIn } from '../api/connection.ts';
import { queries, useAsk } from '../api/queries.ts';
import { Problem } from '../parts/problem.tsx';
import { Button } from '../ui/controls.tsx';
import { TextField } from '../ui/fields.tsx';
import { Waiting } from '../ui/feedback.tsx';
import { Centered, Column, Panel } from '../ui/layout.tsx';
import { Dialog } from '../ui/overlay.tsx';
import { Text, Title } from '../ui/text.tsx';

export const SignIn = () => (
  <Centered>
    <main>
      <Panel>
        <Column>
          <Title>Sign in to Berth</Title>
          <SignInForm email="" />
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
      <SignInForm email={email} />
    </Column>
  </Dialog>
);

function SignInForm({ email }: { email: string }) {
  const [name, setName] = useState(email);
  const [password, setPassword] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  async function submit(): Promise<void> {
    setBusy(true);
    setError(null);
    try {
      await exchange('login', { body: { email: name, password } });
      reportSignIn();
      await queries.invalidateQueries();
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  }
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) void submit();
      }}
    >
      <Column>
        <TextField label="E-mail address" type="email" name="email" autoComplete="username" value={name} onChange={setName} required />
        <TextField label="Password" secret name="password" autoComplete="current-password" value={password} onChange={setPassword} required />
        {error !== null && <Problem error={error} what="Sign-in" />}
        <Button type="submit" look="main" busy={busy}>
          Sign in
        </Button>
      </Column>
    </form>
  );
}
void useAsk;
void Waiting;

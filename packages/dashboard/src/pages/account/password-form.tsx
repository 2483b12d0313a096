/** Changes the password of the signed-in person. */
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { Button } from '../../ui/controls.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';

export function PasswordForm() {
  const [oldPassword, setOldPassword] = useState('');
  const [newPassword, setNewPassword] = useState('');
  const password = useApiMutation('changePassword', () => {
    setOldPassword('');
    setNewPassword('');
  });
  const errors = fieldErrors(password.error);
  return (
    <Panel title="Password" id="password">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void password.run({ body: { old_password: oldPassword, new_password: newPassword } });
        }}
      >
        <Column gap="sm">
          <Columns most={2}>
            <TextField
              label="Current password"
              help="proves that it is you"
              secret
              value={oldPassword}
              onChange={setOldPassword}
              autoComplete="current-password"
              error={errors['old_password']}
              required
            />
            <TextField
              label="New password"
              help="at least 10 characters"
              secret
              value={newPassword}
              onChange={setNewPassword}
              autoComplete="new-password"
              error={errors['new_password']}
              required
            />
          </Columns>
          <FormProblem
            error={password.error}
            what="Changing the password"
            fields={['old_password', 'new_password']}
          />
          <Row>
            <Button type="submit" busy={password.busy}>
              Change
            </Button>
          </Row>
        </Column>
      </form>
    </Panel>
  );
}
